#include "runtime/network_cache.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace tessera::runtime {
namespace {

TEST(NetworkCache, MakesWhatIsNotThere) {
  NetworkCache<int> loaded;
  int made = 0;
  const auto make = [&] { return std::make_unique<int>(++made); };
  const auto first = loaded.get(0, 0, nullptr, make);
  EXPECT_EQ(loaded.get(0, 0, nullptr, make), first);
  EXPECT_EQ(*loaded.get(0, 1, nullptr, make), 2);
  const auto other = loaded.get(8, 0, nullptr, make);
  EXPECT_EQ(*other, 3);
  EXPECT_EQ(*first, 1) << "who holds one keeps it";
  EXPECT_EQ(*loaded.get(0, 0, nullptr, make), 4) << "another variant was asked for since";
  loaded.keep_only(0);
  EXPECT_EQ(*loaded.get(0, 0, nullptr, make), 4);
  loaded.keep_only(8);
  EXPECT_EQ(*loaded.get(0, 0, nullptr, make), 5);
  loaded.release();
  EXPECT_EQ(*loaded.get(0, 0, nullptr, make), 6);
}

TEST(NetworkCache, KeepsNothingOfWhatFails) {
  NetworkCache<int> loaded;
  EXPECT_THROW(loaded.get(0, 0, nullptr, []() -> std::unique_ptr<int> { throw 7; }), int);
  EXPECT_EQ(*loaded.get(0, 0, nullptr, [] { return std::make_unique<int>(1); }), 1);
}

using tensor::MemoryClass;
using tensor::MemoryTracker;

struct Network {
  std::shared_ptr<tensor::Storage> weights =
      tensor::Storage::allocate(30, tensor::Device::cpu, MemoryClass::weights);
  std::shared_ptr<tensor::Storage> table =
      tensor::Storage::allocate(5, tensor::Device::cpu, MemoryClass::activations);
};

tensor::Scope counted_by(const std::shared_ptr<MemoryTracker>& memory) {
  tensor::Scope scope;
  scope.memory = memory;
  return scope;
}

TEST(NetworkCache, CountsForRequestAndRankWhileItIsHeld) {
  const auto first = std::make_shared<MemoryTracker>(), second = std::make_shared<MemoryTracker>();
  const auto rank = std::make_shared<MemoryTracker>(first);
  NetworkCache<Network> loaded;
  const auto make = [] { return std::make_unique<Network>(); };
  std::shared_ptr<const Network> made;
  {
    const tensor::BindScope bind(counted_by(first));
    made = loaded.get(0, 0, rank, make);
  }
  EXPECT_EQ(loaded.bytes(), 35);
  EXPECT_EQ(first->current(MemoryClass::weights), 30);
  EXPECT_EQ(rank->current(MemoryClass::weights), 30);
  EXPECT_EQ(rank->current(MemoryClass::activations), 5) << "what it keeps beside its weights";
  const tensor::BindScope bind(counted_by(second));
  const auto other = std::make_shared<MemoryTracker>(second);
  auto found = loaded.get(0, 0, other, make);
  EXPECT_EQ(found.get(), made.get());
  EXPECT_EQ(second->peak(), 35) << "once, where it was there";
  EXPECT_EQ(other->peak(), 35);
  found.reset();
  EXPECT_EQ(second->current(MemoryClass::weights), 0);
  EXPECT_EQ(other->current(MemoryClass::activations), 0);
  made.reset();
  EXPECT_EQ(rank->current(MemoryClass::weights), 0);
  EXPECT_EQ(first->current(MemoryClass::weights), 30) << "it is still loaded";
  loaded.release();
  EXPECT_EQ(first->current(MemoryClass::weights), 0);
}

TEST(NetworkCache, RanksOfARequestThatShareOneCountItOnce) {
  const auto request = std::make_shared<MemoryTracker>(), later = std::make_shared<MemoryTracker>();
  NetworkCache<Network> loaded;
  const auto make = [] { return std::make_unique<Network>(); };
  for (const auto& who : {request, later}) {
    const tensor::BindScope bind(counted_by(who));
    const auto ranks = {std::make_shared<MemoryTracker>(who), std::make_shared<MemoryTracker>(who)};
    std::vector<std::shared_ptr<const Network>> held;
    for (const auto& rank : ranks) {
      held.push_back(loaded.get(0, 0, rank, make));
      EXPECT_EQ(rank->current(MemoryClass::weights), 30);
    }
    EXPECT_EQ(who->current(MemoryClass::weights), 30);
    held.pop_back();
    EXPECT_EQ(who->current(MemoryClass::weights), 30) << "the first rank holds it";
  }
  EXPECT_EQ(request->current(MemoryClass::weights), 30) << "built for it, and still loaded";
  EXPECT_EQ(later->current(MemoryClass::weights), 0);
}

TEST(NetworkCache, OfTwoRequestsThatBuildItAtOnceTheSecondCountsItOnce) {
  const auto first = std::make_shared<MemoryTracker>(), second = std::make_shared<MemoryTracker>();
  NetworkCache<Network> loaded;
  const auto make = [] { return std::make_unique<Network>(); };
  std::shared_ptr<const Network> theirs;
  const tensor::BindScope bind(counted_by(second));
  auto mine = loaded.get(0, 0, nullptr, [&] {
    std::optional<tensor::BindScope> other(counted_by(first));
    theirs = loaded.get(0, 0, nullptr, make);  // finishes before this build
    other.reset();
    return make();
  });
  EXPECT_EQ(mine, theirs);
  EXPECT_EQ(second->current(MemoryClass::weights), 30);
  EXPECT_EQ(second->peak(), 35) << "its own goes before it takes the other one";
  EXPECT_EQ(first->peak(), 35);
  EXPECT_EQ(loaded.bytes(), 35);
  mine.reset();
  EXPECT_EQ(second->current(), 0);
}

TEST(NetworkCache, ARankIsNotTheSumOfItsBuilding) {
  const auto request = std::make_shared<MemoryTracker>();
  const auto rank = std::make_shared<MemoryTracker>(request);
  const tensor::BindScope bind(counted_by(request));
  NetworkCache<Network> loaded;
  const auto network = loaded.get(0, 0, rank, [] {
    (void)tensor::Storage::allocate(1000, tensor::Device::cpu, MemoryClass::activations);
    return std::make_unique<Network>();
  });
  EXPECT_EQ(request->peak(), 1000);
  EXPECT_EQ(rank->peak(), 35) << "of the run, not of what was packed before it";
}

}  // namespace
}  // namespace tessera::runtime
