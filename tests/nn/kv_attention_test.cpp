#include "nn/kv_attention.h"

#include <gtest/gtest.h>

#include <random>

#include "nn/local.h"
#include "ops/elementwise.h"
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

Qkv heads_of(int64_t tokens) {
  std::mt19937 rng(3);
  std::normal_distribution<float> draw;
  auto normal = [&](int64_t width) {
    Tensor x = Tensor::empty({tokens, width}, DType::f32);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = draw(rng);
    return x;
  };
  return {normal(16), normal(8), normal(8)};
}

Qkv cut(const Qkv& h, int64_t begin, int64_t end) {
  return {h.q.slice(0, begin, end), h.k.slice(0, begin, end), h.v.slice(0, begin, end)};
}

TEST(KvAttention, WholeRowsAreLocalAttention) {
  for (int block : {0, 4}) {
    const Geometry g = one_site(block);
    KvAttention kept(g, {{0, 11}, {0, 7}});
    LocalAttention local(g);
    const Qkv h = heads_of(18);
    const TokenView view{-1, {0, 1}, {}, {{0, {0, 11}}, {1, {0, 7}}}, {11, 7}};
    EXPECT_EQ(kept.attend(0, view, h).to_floats(), local.attend(0, view, h).to_floats());
  }
}

TEST(KvAttention, ABlockOnKeptKeysIsTheWholeRowBitByBit) {
  const Geometry g = one_site(4);
  const Qkv h = heads_of(12);
  KvAttention whole(g, {{0, 12}}), parts(g, {{0, 12}});
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
  const Qkv h = heads_of(12);
  KvAttention attention(g, {{0, 12}});
  const TokenView all{-1, {0}, {}, {{0, {0, 12}}}, {12}}, middle{-1, {0}, {}, {{0, {4, 8}}}, {12}};
  attention.begin_step({.index = 0});
  const Tensor whole = attention.attend(0, all, h);
  attention.begin_step({.index = 1});
  EXPECT_EQ(attention.attend(0, middle, cut(h, 4, 8)).to_floats(),
            whole.slice(0, 4, 8).to_floats());
  EXPECT_EQ(attention.slots().written(0, 0, 3), 0);
  EXPECT_EQ(attention.slots().written(0, 0, 5), 1);
}

TEST(KvAttention, JointTextIsLocalAttention) {
  for (bool asks : {false, true}) {
    Geometry g = one_site(0);
    g.attention[0].joint = true;
    g.attention[0].prefix_queries = asks;
    Qkv heads = heads_of(17);  // 2 + 3 tokens of text, then 8 + 4
    if (!asks) heads.q = heads.q.slice(0, 5, 17);
    const TokenView view{-1, {0, 1}, {{0, {-2, 0}}, {1, {-3, 0}}}, {{0, {0, 8}}, {1, {0, 4}}}};
    KvAttention kept(g, {{-2, 8}, {-3, 4}});
    EXPECT_EQ(kept.attend(0, view, heads).to_floats(),
              LocalAttention(g).attend(0, view, heads).to_floats());
  }
}

// A later patch sees the text and the earlier cached patches.
TEST(KvAttention, PatchesSeeWhatOthersLeft) {
  Geometry g = one_site(0);
  g.attention[0].joint = g.attention[0].prefix_queries = true;
  const Qkv heads = heads_of(13);  // three tokens of text
  const TokenView all{-1, {0}, {{0, {-3, 0}}}, {{0, {0, 10}}}};
  KvAttention attention(g, {{-3, 10}});
  const Tensor whole = attention.attend(0, all, heads);
  const TokenView part{1, {0}, {}, {{0, {2, 4}}, {0, {7, 9}}}};
  Qkv mine;
  for (auto [from, to] : {std::pair{&heads.q, &mine.q}, {&heads.k, &mine.k}, {&heads.v, &mine.v}})
    *to = ops::concat_rows({from->slice(0, 5, 7), from->slice(0, 10, 12)});
  attention.begin_step({.index = 1});
  const Tensor out = attention.attend(0, part, mine);
  EXPECT_EQ(out.slice(0, 0, 2).to_floats(), whole.slice(0, 5, 7).to_floats());
  EXPECT_EQ(out.slice(0, 2, 4).to_floats(), whole.slice(0, 10, 12).to_floats());
  EXPECT_EQ(attention.slots().written(0, 0, 8), 1);
  EXPECT_EQ(attention.slots().written(0, 0, -1), 0);
}

TEST(KvAttention, RefusesLengthsThatDoNotFitTheView) {
  const Geometry g = one_site(0);
  KvAttention attention(g, {{0, 4}});
  const TokenView view{-1, {0}, {}, {{0, {0, 4}}}, {4, 4}};
  EXPECT_THROW(attention.attend(0, view, heads_of(4)), Error);
  const TokenView longer{-1, {0}, {}, {{0, {0, 4}}}, {5}};
  EXPECT_THROW(attention.attend(0, longer, heads_of(4)), Error) << "a slot that nobody wrote";
}

}  // namespace
}  // namespace tessera::nn
