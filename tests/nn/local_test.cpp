#include "nn/local.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "nn/positions.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

Tensor normal(const tensor::Shape& shape, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = draw(rng);
  return Tensor::from(std::span<const float>(values), shape);
}

Geometry one_site(bool joint, bool prefix_queries, int causal_block = 0) {
  Geometry g;
  g.blocks = 1;
  g.attention = {{.block = 0,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 8,
                  .joint = joint,
                  .prefix_queries = prefix_queries,
                  .causal_block = causal_block}};
  return g;
}

Qkv heads_of(int64_t tokens, uint32_t seed) {
  return {normal({tokens, 16}, seed), normal({tokens, 16}, seed + 1),
          normal({tokens, 16}, seed + 2)};
}

Qkv slice(const Qkv& h, int64_t begin, int64_t end) {
  return {h.q.slice(0, begin, end), h.k.slice(0, begin, end), h.v.slice(0, begin, end)};
}

TEST(LocalAttention, RowsDoNotSeeEachOther) {
  const Geometry g = one_site(false, false);
  LocalAttention attention(g);
  const Qkv both = heads_of(12, 1);
  const TokenView view{-1, {0, 1}, {}, {{0, {0, 5}}, {1, {0, 7}}}};
  const Tensor packed = attention.attend(0, view, both);
  const TokenView second{-1, {1}, {}, {{1, {0, 7}}}};
  const Tensor alone = attention.attend(0, second, slice(both, 5, 12));
  EXPECT_EQ(packed.slice(0, 5, 12).to_floats(), alone.to_floats());
}

TEST(LocalAttention, JointTextAnswersAndAsks) {
  const Geometry g = one_site(true, true);
  LocalAttention attention(g);
  const Qkv both = heads_of(8, 4), latent = slice(both, 3, 8);
  const TokenView view{-1, {0}, {{0, {0, 3}}}, {{0, {0, 5}}}};
  const Tensor seen = attention.attend(0, view, both);
  ASSERT_EQ(seen.shape(), (tensor::Shape{8, 16}));
  // Without the text the same latent queries see something else.
  const Geometry apart = one_site(false, false);
  LocalAttention without(apart);
  EXPECT_NE(without.attend(0, view, latent).to_floats(), seen.slice(0, 3, 8).to_floats());
}

// Text and latent of a single sequence are adjacent already; for several sequences keys and values
// are moved.
TEST(LocalAttention, JointRowsSeeTheirOwnTextAndLatent) {
  for (const bool asks : {true, false}) {
    const Geometry g = one_site(true, asks);
    LocalAttention attention(g);
    // Text of sequences 0 (two tokens), 1 (one token), 2 (none); latent of 4, 1 and 2.
    const Qkv all = heads_of(10, 4);
    const TokenView view{
        -1, {0, 1, 2}, {{0, {0, 2}}, {1, {0, 1}}}, {{0, {0, 4}}, {1, {0, 1}}, {2, {0, 2}}}};
    const auto picked = [&](const Tensor& x, Range text, Range latent) {
      return take_ranges(x, {text, {3 + latent.begin, 3 + latent.end}});
    };
    const Range texts[] = {{0, 2}, {2, 3}, {3, 3}}, latents[] = {{0, 4}, {4, 5}, {5, 7}};
    const Tensor q = asks ? all.q : all.q.slice(0, 3, 10);
    const Tensor seen = attention.attend(0, view, {q, all.k, all.v});
    for (int r = 0; r < 3; ++r) {
      const Range t = texts[r], l = latents[r];
      const Tensor k = picked(all.k, t, l), v = picked(all.v, t, l);
      const Tensor asked = asks ? picked(all.q, t, l) : q.slice(0, l.begin, l.end);
      const TokenView one{-1, {r}, {{r, {0, t.size()}}}, {{r, {0, l.size()}}}};
      tensor::Scope scope;
      scope.meter = std::make_shared<tensor::Meter>();
      const tensor::BindScope bind(scope);
      const Tensor alone = attention.attend(0, one, {asked, k, v});
      EXPECT_FALSE(scope.meter->entries().contains("concat"));
      const Tensor together = asks ? picked(seen, t, l) : seen.slice(0, l.begin, l.end);
      EXPECT_EQ(alone.to_floats(), together.to_floats()) << r;
    }
    EXPECT_EQ(attention.attend(0, {}, slice(all, 0, 0)).size(0), 0);  // a view without sequences
  }
}

TEST(LocalAttention, CausalBlocksSeeThemselvesAndEarlierOnes) {
  const Geometry causal = one_site(false, false, 4), full = one_site(false, false);
  LocalAttention blocks(causal), all(full);
  const Qkv h = heads_of(10, 21);
  const TokenView view{-1, {0}, {}, {{0, {0, 10}}}};
  const Tensor out = blocks.attend(0, view, h);
  const TokenView first{-1, {0}, {}, {{0, {0, 4}}}};
  EXPECT_EQ(out.slice(0, 0, 4).to_floats(), all.attend(0, first, slice(h, 0, 4)).to_floats());
  EXPECT_EQ(out.slice(0, 8, 10).to_floats(), all.attend(0, view, h).slice(0, 8, 10).to_floats());
}

TEST(LocalAttention, RefusesARowInTwoPieces) {
  const Geometry g = one_site(false, false);
  LocalAttention attention(g);
  const TokenView view{-1, {0}, {}, {{0, {0, 2}}, {0, {2, 4}}}};
  EXPECT_THROW(attention.attend(0, view, heads_of(4, 1)), Error);
}

}  // namespace
}  // namespace tessera::nn
