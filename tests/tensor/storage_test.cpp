#include "tensor/storage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::tensor {
namespace {

TEST(Storage, CountsBytesByClassAndFreesThem) {
  Scope scope;
  scope.memory = std::make_shared<MemoryTracker>();
  {
    const BindScope bind(scope);
    const auto a = Storage::allocate(100, Device::cpu, MemoryClass::weights);
    const auto b = Storage::allocate(50, Device::meta, MemoryClass::kv);
    EXPECT_EQ(b->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % 64, 0u);
    EXPECT_EQ(scope.memory->current(MemoryClass::weights), 100);
  }
  EXPECT_EQ(scope.memory->current(MemoryClass::weights), 0);
  EXPECT_EQ(scope.memory->peak(MemoryClass::kv), 50);
  EXPECT_EQ(scope.memory->peak(), 150);
}

TEST(Storage, MessagesAreMemoryFromWhereTheyAreExpected) {
  const auto process = std::make_shared<MemoryTracker>();
  const auto rank = std::make_shared<MemoryTracker>(process);
  rank->add(MemoryClass::activations, 100);
  const uint64_t first = rank->expect();
  rank->add(MemoryClass::activations, 50);
  rank->add(MemoryClass::activations, -50);
  const uint64_t second = rank->expect();
  const uint64_t lost = rank->expect();
  rank->add(MemoryClass::kv, 10);
  rank->arrived(second, 1000);
  EXPECT_EQ(rank->peak(MemoryClass::buffers), 1000);
  EXPECT_EQ(rank->peak(), 1110);
  EXPECT_EQ(rank->current(MemoryClass::buffers), 0) << "who has it counts it";
  rank->arrived(first, 7);
  rank->arrived(lost, 0);
  for (const auto& tracker : {rank, process}) {
    EXPECT_EQ(tracker->peak(MemoryClass::buffers), 1007);
    EXPECT_EQ(tracker->peak(), 1117);
    EXPECT_EQ(tracker->peak(MemoryClass::activations), 150);
  }
  rank->add(MemoryClass::buffers, 1);
  EXPECT_EQ(rank->peak(), 1117);
}

TEST(Storage, PartsCountWithWhoHoldsThem) {
  Scope mine, yours;
  mine.memory = std::make_shared<MemoryTracker>();
  yours.memory = std::make_shared<MemoryTracker>();
  std::shared_ptr<Storage> whole, sent, held;
  {
    const BindScope bind(mine);
    whole = Storage::allocate(100, Device::cpu, MemoryClass::activations);
    sent = Storage::part(*whole, 20, 30, {});
  }
  whole->data()[20] = std::byte{7};
  whole.reset();
  EXPECT_EQ(mine.memory->current(MemoryClass::activations), 0);
  {
    const BindScope bind(yours);
    held = Storage::part(*sent, 0, 30, MemoryClass::buffers);
  }
  sent.reset();
  EXPECT_EQ(held->data()[0], std::byte{7});
  EXPECT_EQ(yours.memory->current(MemoryClass::buffers), 30);
  held.reset();
  EXPECT_EQ(yours.memory->current(MemoryClass::buffers), 0);
}

int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// As a streamed transformer: blocks of weights come and go, something small stays of each.
TEST(Storage, WeightsThatWereFreedAreGone) {
  std::vector<std::shared_ptr<Storage>> stay;
  int64_t after_first = 0;
  for (int block = 0; block < 15; ++block) {
    std::vector<std::shared_ptr<Storage>> weights;
    for (int i = 0; i < 8; ++i) {
      weights.push_back(Storage::allocate(1152 * 1152 * 2, Device::cpu, MemoryClass::weights));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(weights.back()->data()) % 64, 0u);
      std::memset(weights.back()->data(), 1, static_cast<size_t>(weights.back()->bytes()));
      stay.push_back(Storage::allocate(500, Device::cpu, MemoryClass::weights));
    }
    weights.clear();
    if (block == 0) after_first = resident_bytes();
  }
  EXPECT_LT(resident_bytes() - after_first, 10'000'000);
}

TEST(Storage, PagesAreReusedByWeightsThatTheyHold) {
  constexpr int64_t kBytes = 1 << 20;
  const auto place = [](int64_t bytes) {
    const auto x = Storage::allocate(bytes, Device::cpu, MemoryClass::weights);
    std::memset(x->data(), 1, static_cast<size_t>(bytes));
    return x->data();
  };
  const int64_t before = resident_bytes();
  {
    const PageReuse reuse;
    const std::byte* const first = place(kBytes);
    {
      const PageReuse inner;
      EXPECT_EQ(place(kBytes), first);
    }
    EXPECT_EQ(place(kBytes / 3), first) << "the same pages";
    EXPECT_EQ(place(kBytes), first) << "and still all of them";
    std::vector<std::shared_ptr<Storage>> both;
    for (int i = 0; i < 2; ++i)
      both.push_back(Storage::allocate(kBytes, Device::cpu, MemoryClass::weights));
    EXPECT_NE(both[0]->data(), both[1]->data());
    both.clear();
    for (int i = 1; i < 40; ++i) place(kBytes * i);
    EXPECT_LT(resident_bytes() - before, 60 * kBytes) << "sizes that grow keep the last one";
  }
  EXPECT_LT(resident_bytes() - before, 4 * kBytes) << "nothing waits for nobody";
}

TEST(Storage, AViewKeepsItsOwnerAlive) {
  auto owner = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = owner;
  auto view = Storage::view(owner.get(), sizeof(int), owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(*reinterpret_cast<int*>(view->data()), 7);
  view.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Storage, RefusesADeviceThatThisBuildLacks) {
  EXPECT_THROW(Storage::allocate(1, Device::cuda, MemoryClass::kv), Error);
}

}  // namespace
}  // namespace tessera::tensor
