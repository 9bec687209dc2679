#include "tensor/storage.h"

#include <gtest/gtest.h>

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
