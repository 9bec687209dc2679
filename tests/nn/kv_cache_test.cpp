#include "nn/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

Geometry two_sites() {
  Geometry g;
  for (int b : {0, 1})
    g.attention.push_back({.block = b, .heads = 2, .kv_heads = 1, .head_dim = 8});
  return g;
}

Tensor counted(int64_t tokens, float from) {
  std::vector<float> values(static_cast<size_t>(tokens * 8));
  std::iota(values.begin(), values.end(), from);
  return Tensor::from(std::span<const float>(values), {tokens, 8});
}

TEST(KvCache, GivesBackWhatWasWrittenByRowAndId) {
  const Geometry g = two_sites();
  KvCache slots(g, {{0, 3}, {}, {}, {}, {0, 4}});
  slots.write(1, {{0, {0, 3}}, {4, {2, 4}}}, counted(5, 0), counted(5, 100), 7);
  slots.write(1, {{4, {0, 2}}}, counted(2, 500), counted(2, 600), 8);
  const auto [k, v] = slots.read(1, 4, {0, 4});
  EXPECT_EQ(k.row<float>(0)[0], 500);
  EXPECT_EQ(k.row<float>(2)[0], 24);
  EXPECT_EQ(v.row<float>(3)[1], 133);
  EXPECT_EQ(slots.written(1, 4, 0), 8);
  EXPECT_EQ(slots.written(1, 4, 3), 7);
  EXPECT_EQ(slots.written(0, 4, 3), -1);
  EXPECT_GT(slots.bytes(), 0);
}

TEST(KvCache, CountAsKeysAndValues) {
  const Geometry g = two_sites();
  const Tensor k = counted(5, 0), v = counted(5, 100);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  KvCache slots(g, {{0, 5}});
  slots.write(0, {{0, {0, 5}}}, k, v, 1);
  EXPECT_EQ(slots.bytes(), 2 * 5 * 8 * 4);
  EXPECT_GE(scope.memory->current(tensor::MemoryClass::kv), slots.bytes());
  EXPECT_EQ(scope.memory->current(tensor::MemoryClass::activations), 0);
}

TEST(KvCache, TextStandsBeforeTheBodyOfItsRow) {
  Geometry g = two_sites();
  g.attention[1].joint = true;
  KvCache slots(g, {{-2, 3}, {0, 1}, {-1, 2}});
  slots.write(1, {{0, {-2, 0}}, {2, {-1, 0}}}, counted(3, 0), counted(3, 100), 1);
  slots.write(1, {{0, {0, 3}}, {1, {0, 1}}, {2, {0, 2}}}, counted(6, 500), counted(6, 600), 2);
  const Tensor k = slots.read(1, 0, {-2, 3}).first;
  EXPECT_EQ(k.row<float>(1)[0], 8);
  EXPECT_EQ(k.row<float>(2)[0], 500);
  EXPECT_EQ(slots.read(1, 2, {-1, 2}).second.row<float>(0)[0], 116);
  EXPECT_EQ(slots.places(1, 2, {0, 2}), (Range{7, 9}));
  EXPECT_EQ(slots.written(1, 0, -1), 1);
  const std::span<const int> steps = slots.written(1, 0);
  EXPECT_EQ(std::vector<int>(steps.begin(), steps.end()), (std::vector<int>{1, 1, 2, 2, 2}));
  EXPECT_TRUE(slots.written(0, 0).empty()) << "nothing was written";
  EXPECT_EQ(slots.bytes(), 2 * 9 * 8 * 4);
  // A site without text has no slots for text.
  slots.write(0, {{0, {0, 3}}}, counted(3, 0), counted(3, 0), 1);
  EXPECT_EQ(slots.bytes(), 2 * (9 + 6) * 8 * 4);
  EXPECT_THROW(slots.write(0, {{0, {-2, 0}}}, counted(2, 0), counted(2, 0), 1), Error);
}

TEST(KvCache, AShardKeepsItsHeads) {
  Geometry g = two_sites();
  g.attention[0].heads = 10;
  g.attention[0].kv_heads = 5;
  int all = 0;
  for (int shard = 0; shard < 3; ++shard) {
    KvCache slots(g, {{0, 2}}, {shard, 3});
    const auto [heads, kv_heads] = slots.heads(0);
    EXPECT_EQ(heads, 2 * kv_heads);
    all += kv_heads;
    const Tensor k = Tensor::zeros({2, kv_heads * 8}, DType::f32);
    slots.write(0, {{0, {0, 2}}}, k, k, 0);
    EXPECT_EQ(slots.bytes(), 2 * k.bytes());
    const Tensor more = Tensor::zeros({2, kv_heads * 8 + 8}, DType::f32);
    EXPECT_THROW(slots.write(0, {{0, {0, 2}}}, more, more, 0), Error);
  }
  EXPECT_EQ(all, 5);
}

TEST(KvCache, RefusesIdsThatTheRowDoesNotHave) {
  const Geometry g = two_sites();
  KvCache slots(g, {{0, 3}});
  EXPECT_THROW(slots.write(0, {{0, {1, 4}}}, counted(3, 0), counted(3, 0), 1), Error);
  EXPECT_THROW(KvCache(g, {{1, 3}}), Error);
}

TEST(KvCache, TakesOverWhatAnotherLeaves) {
  const Geometry g = two_sites();
  KvCache::Tables left;
  {
    KvCache first(g, {{0, 5}});
    for (int site : {0, 1})
      first.write(site, {{0, {0, 5}}}, counted(5, 100.0f * float(site)), counted(5, 1000), 7);
    left = first.release();
    EXPECT_EQ(first.written(0, 0, 0), -1);
    EXPECT_EQ(first.bytes(), 0);
  }
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  KvCache second(g, {{0, 2}, {0, 8}});
  KvCache::Tables half(left.begin(), left.begin() + 1);
  EXPECT_THROW(second.adopt(1, 3, half), Error) << "of fewer sites";
  EXPECT_THROW(second.adopt(1, 6, left), Error) << "of more tokens than there are";
  second.adopt(1, 3, std::exchange(left, {}));
  EXPECT_EQ(second.read(1, 1, {0, 3}).first.row<float>(2)[0], 116);
  EXPECT_EQ(second.read(0, 1, {0, 3}).second.row<float>(1)[7], 1015);
  EXPECT_EQ(second.written(1, 1, 2), 0);
  EXPECT_EQ(second.written(1, 1, 3), -1);
  EXPECT_EQ(second.written(1, 0, 0), -1);
  // Peak: both tables of both sites, and a further site; then only the new tables.
  const int64_t row = 8 * 4 * 2;
  EXPECT_EQ(scope.memory->current(tensor::MemoryClass::kv), 2 * 10 * row);
  EXPECT_EQ(scope.memory->peak(tensor::MemoryClass::kv), (10 + 5) * row + 10 * row);
}

TEST(KvCache, SequencesComeAndGo) {
  Geometry g = two_sites();
  g.attention[1].joint = true;
  KvCache slots(g, {{-1, 2}, {0, 3}});
  slots.write(0, {{0, {0, 2}}, {1, {0, 3}}}, counted(5, 0), counted(5, 100), 4);
  slots.write(1, {{0, {-1, 2}}, {1, {1, 2}}}, counted(4, 500), counted(4, 600), 5);
  const int64_t bytes = slots.bytes();
  slots.renew({{}, {0, 3}, {0, 4}});  // the first sequence ends, a third begins
  EXPECT_EQ(slots.read(0, 1, {0, 3}).first.row<float>(0)[0], 16);
  EXPECT_EQ(slots.read(0, 1, {0, 3}).second.row<float>(2)[0], 132);
  EXPECT_EQ(slots.read(1, 1, {1, 2}).first.row<float>(0)[0], 524);
  EXPECT_EQ(slots.written(1, 1, 1), 5);
  EXPECT_EQ(slots.written(1, 1, 0), -1);
  EXPECT_EQ(slots.written(0, 0, 0), -1);
  EXPECT_EQ(slots.written(0, 2, 0), -1);
  EXPECT_EQ(slots.bytes(), bytes / 11 * 14);  // slots of both sites
  slots.write(0, {{2, {0, 4}}}, counted(4, 700), counted(4, 800), 6);
  EXPECT_EQ(slots.read(0, 2, {3, 4}).first.row<float>(0)[0], 724);
  EXPECT_EQ(slots.read(0, 1, {0, 1}).first.row<float>(0)[0], 16);
  EXPECT_THROW(slots.renew({{}, {0, 3}}), Error);
  EXPECT_THROW(slots.renew({{}, {0, 2}, {0, 4}}), Error);
}

TEST(KvCache, RefusesASlotThatWasNeverWritten) {
  const Geometry g = two_sites();
  KvCache slots(g, {{0, 6}});
  slots.write(0, {{0, {4, 6}}}, counted(2, 0), counted(2, 0), 1);
  EXPECT_NO_THROW(slots.read(0, 0, {4, 6}));
  try {
    slots.read(0, 0, {0, 6});
    FAIL() << "read what nobody wrote";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 0 of sequence 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::nn
