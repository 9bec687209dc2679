#include "load/held_weights.h"

#include <gtest/gtest.h>

#include <thread>

#include "load/weight_store.h"
#include "scratch_folder.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

TensorSet written(const ScratchFolder& folder, float value) {
  std::map<std::string, Tensor> tensors;
  const auto full = [&](const tensor::Shape& shape) {
    return Tensor::from(std::vector<float>(size_t(shape.elements()), value), shape);
  };
  tensors["w"] = full({48, 32});
  tensors["u"] = full({48, 32});
  tensors["b"] = full({48});
  tensors["filter"] = full({8, 4, 3, 3});
  write_safetensors(folder.path("model.safetensors"), tensors);
  return open_component(folder.path());
}

void ask(const nn::Weights& weights) {
  weights.get("b", {48});
  weights.matrix("w", 48, 32, DType::bf16);
  weights.paired("w", "u", 48, 32, DType::bf16);
  weights.conv("filter", "", {8, 4, 3, 3}, DType::bf16);
  weights.vector("b", 48);
}

TEST(HeldWeights, StayForAsLongAsItDoes) {
  const ScratchFolder folder;
  const WeightStore store;
  const TensorSet tensors = written(folder, 1);
  ask(*store.open(tensors));
  EXPECT_EQ(store.live(), 0);
  auto held = std::make_shared<const HeldWeights>(store.open(tensors));
  EXPECT_TRUE(held->has("w"));
  EXPECT_FALSE(held->has("v"));
  ask(*held);
  EXPECT_EQ(store.live(), 5);
  const ops::Weight w = held->matrix("w", 48, 32, DType::bf16);
  EXPECT_EQ(store.open(tensors)->matrix("w", 48, 32, DType::bf16), w) << "others find it there";
  EXPECT_EQ(held->matrix("w", 48, 32, DType::bf16), w);
  EXPECT_NE(held->matrix("w", 48, 32, DType::f32), w);
  std::shared_ptr<const void> values = held->values();
  held.reset();
  EXPECT_EQ(store.live(), 6);
  values.reset();
  EXPECT_EQ(store.live(), 1) << "the one in use";
}

TEST(HeldWeights, CountForWhoAsksWhileOthersHoldThem) {
  const ScratchFolder folder;
  const WeightStore store;
  const TensorSet tensors = written(folder, 1);
  std::shared_ptr<const HeldWeights> before;
  int64_t first = 0;
  for (int request = 0; request < 3; ++request) {
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    auto held = std::make_shared<const HeldWeights>(store.open(tensors));
    ask(*held);
    before = held;
    const int64_t bytes = scope.memory->current(tensor::MemoryClass::weights);
    if (request == 0) first = bytes;
    EXPECT_EQ(bytes, first) << request;
  }
  EXPECT_GT(first, 0);
}

TEST(HeldWeights, AreAskedByThreadsAtOnce) {
  const ScratchFolder folder;
  const WeightStore store;
  const TensorSet tensors = written(folder, 1);
  const HeldWeights one(store.open(tensors)), other(store.open(tensors));
  std::vector<ops::Weight> found(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] {
      const HeldWeights& mine = i % 2 == 0 ? one : other;
      for (int time = 0; time < 50; ++time) ask(mine);
      found[i] = mine.matrix("w", 48, 32, DType::bf16);
    });
  for (std::thread& thread : threads) thread.join();
  for (const ops::Weight& each : found) EXPECT_EQ(each.get(), found[0].get());
  EXPECT_EQ(store.live(), 5);
}

TEST(HeldWeights, HandCutsOnWithoutHoldingThem) {
  const ScratchFolder folder;
  const WeightStore store;
  const HeldWeights held(store.open(written(folder, 1)));
  const nn::Cut half{0, {{0, 16}}};
  EXPECT_EQ(held.matrix("w", 48, 32, DType::f32, half)->n, 16);
  EXPECT_EQ(held.paired("w", "u", 48, 32, DType::f32, half)->n, 16);
  EXPECT_EQ(held.vector("b", 48, half).elements(), 16);
  EXPECT_EQ(store.live(), 0);
  EXPECT_EQ(held.shard().count, 1);
}

TEST(HeldWeights, RefuseWhatTheirStoreRefuses) {
  const ScratchFolder folder;
  const WeightStore store;
  const HeldWeights held(store.open(written(folder, 1)));
  for (int time = 0; time < 2; ++time)
    EXPECT_THROW(held.matrix("w", 32, 48, DType::f32), Error) << "not held either";
}

}  // namespace
}  // namespace tessera::load
