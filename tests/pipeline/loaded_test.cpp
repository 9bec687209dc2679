#include "pipeline/loaded.h"

#include <gtest/gtest.h>

namespace tessera::pipeline {
namespace {

TEST(Loaded, MakesWhatIsNotThere) {
  Loaded<int> loaded;
  int made = 0;
  const auto make = [&] { return std::make_unique<int>(++made); };
  const auto first = loaded.get(0, 0, {}, make);
  EXPECT_EQ(loaded.get(0, 0, {}, make), first);
  EXPECT_EQ(*loaded.get(0, 1, {}, make), 2);
  const auto other = loaded.get(8, 0, {}, make);
  EXPECT_EQ(*other, 3);
  EXPECT_EQ(*first, 1) << "who holds one keeps it";
  EXPECT_EQ(*loaded.get(0, 0, {}, make), 4) << "another variant was asked for since";
  loaded.keep_only(0);
  EXPECT_EQ(*loaded.get(0, 0, {}, make), 4);
  loaded.keep_only(8);
  EXPECT_EQ(*loaded.get(0, 0, {}, make), 5);
  loaded.release();
  EXPECT_EQ(*loaded.get(0, 0, {}, make), 6);
}

TEST(Loaded, KeepsNothingOfWhatFails) {
  Loaded<int> loaded;
  EXPECT_THROW(loaded.get(0, 0, {}, []() -> std::unique_ptr<int> { throw 7; }), int);
  EXPECT_EQ(*loaded.get(0, 0, {}, [] { return std::make_unique<int>(1); }), 1);
}

TEST(Loaded, WhatWasThereCountsWhileItIsHeld) {
  using tensor::MemoryClass;
  const auto first = std::make_shared<tensor::MemoryTracker>(),
             second = std::make_shared<tensor::MemoryTracker>();
  Loaded<int> loaded;
  const auto made = loaded.get(0, 0, {first}, [&] {
    first->add(MemoryClass::weights, 30);
    first->add(MemoryClass::buffers, 5);
    return std::make_unique<int>(1);
  });
  auto found = loaded.get(0, 0, {second}, []() -> std::unique_ptr<int> { throw 7; });
  EXPECT_EQ(found.get(), made.get());
  EXPECT_EQ(second->current(MemoryClass::weights), 30);
  found.reset();
  EXPECT_EQ(second->current(MemoryClass::weights), 0);
  EXPECT_EQ(second->peak(), 30);
  EXPECT_EQ(first->current(MemoryClass::weights), 30);
}

}  // namespace
}  // namespace tessera::pipeline
