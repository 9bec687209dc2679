#include "nn/kv_attention.h"

#include <gtest/gtest.h>

#include <random>

#include "nn/local.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

Geometry one_site(int causal_block) {
  Geometry g;
  g.blocks = 1;
  g.attention = {
      {.block = 0, .heads = 2, .kv_heads = 1, .head_dim = 8, .causal_block = causal_block}};
  return g;
}

Heads heads_of(int64_t tokens) {
  std::mt19937 rng(3);
  std::normal_distribution<float> draw;
  auto normal = [&](int64_t width) {
    Tensor x = Tensor::empty({tokens, width}, DType::f32);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
    return x;
  };
  return {normal(16), normal(8), normal(8)};
}

Heads cut(const Heads& h, int64_t begin, int64_t end) {
  return {h.q.slice(0, begin, end), h.k.slice(0, begin, end), h.v.slice(0, begin, end)};
}

TEST(KvAttention, WholeRowsAreLocalAttention) {
  for (int block : {0, 4}) {
    const Geometry g = one_site(block);
    KvAttention kept(g, DType::f32);
    LocalAttention local(g);
    const Heads h = heads_of(18);
    const TokenView view{-1, {0, 1}, {}, {{0, {0, 11}}, {1, {0, 7}}}, {11, 7}};
    EXPECT_EQ(kept.attend(0, view, h).to_floats(), local.attend(0, view, h).to_floats());
  }
}

TEST(KvAttention, ABlockOnKeptKeysIsTheWholeRowBitByBit) {
  const Geometry g = one_site(4);
  const Heads h = heads_of(12);
  KvAttention whole(g, DType::f32), parts(g, DType::f32);
  const TokenView all{-1, {0}, {}, {{0, {0, 12}}}, {12}};
  const Tensor expected = whole.attend(0, all, h);
  for (int64_t from : {0, 4, 8}) {
    const TokenView view{-1, {0}, {}, {{0, {from, from + 4}}}, {from + 4}};
    EXPECT_EQ(parts.attend(0, view, cut(h, from, from + 4)).to_floats(),
              expected.slice(0, from, from + 4).to_floats());
  }
}

TEST(KvAttention, WhatAViewLeavesOutIsReadAsItWasLeft) {
  const Geometry g = one_site(0);
  const Heads h = heads_of(12);
  KvAttention attention(g, DType::f32);
  const TokenView all{-1, {0}, {}, {{0, {0, 12}}}, {12}}, middle{-1, {0}, {}, {{0, {4, 8}}}, {12}};
  attention.begin_step({.index = 0});
  const Tensor whole = attention.attend(0, all, h);
  attention.begin_step({.index = 1});
  EXPECT_EQ(attention.attend(0, middle, cut(h, 4, 8)).to_floats(),
            whole.slice(0, 4, 8).to_floats());
  EXPECT_EQ(attention.slots().written(0, 0, 3), 0);
  EXPECT_EQ(attention.slots().written(0, 0, 5), 1);
}

TEST(KvAttention, NeedsTheLengthsOfTheRows) {
  const Geometry g = one_site(0);
  KvAttention attention(g, DType::f32);
  const TokenView view{-1, {0}, {}, {{0, {0, 4}}}};
  EXPECT_THROW(attention.attend(0, view, heads_of(4)), Error);
}

}  // namespace
}  // namespace tessera::nn
