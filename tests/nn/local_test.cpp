#include "nn/local.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

Heads heads_of(int64_t tokens, uint32_t seed) {
  return {normal({tokens, 16}, seed), normal({tokens, 16}, seed + 1),
          normal({tokens, 16}, seed + 2)};
}

Heads slice(const Heads& h, int64_t begin, int64_t end) {
  return {h.q.slice(0, begin, end), h.k.slice(0, begin, end), h.v.slice(0, begin, end)};
}

TEST(LocalAttention, RowsDoNotSeeEachOther) {
  const Geometry g = one_site(false, false);
  LocalAttention attention(g);
  const Heads both = heads_of(12, 1);
  const TokenView view{-1, {0, 1}, {}, {{0, {0, 5}}, {1, {0, 7}}}};
  const Tensor packed = attention.attend(0, view, {}, both).body;
  const TokenView second{-1, {1}, {}, {{1, {0, 7}}}};
  const Tensor alone = attention.attend(0, second, {}, slice(both, 5, 12)).body;
  EXPECT_EQ(packed.slice(0, 5, 12).to_floats(), alone.to_floats());
}

TEST(LocalAttention, JointTextAnswersAndAsks) {
  const Geometry g = one_site(true, true);
  LocalAttention attention(g);
  const Heads text = heads_of(3, 4), latent = heads_of(5, 8);
  const TokenView view{-1, {0}, {{0, {0, 3}}}, {{0, {0, 5}}}};
  const Joint seen = attention.attend(0, view, text, latent);
  ASSERT_EQ(seen.prefix.shape(), (tensor::Shape{3, 16}));
  ASSERT_EQ(seen.body.shape(), (tensor::Shape{5, 16}));
  // Without the text the same latent queries see something else.
  const Geometry apart = one_site(false, false);
  LocalAttention without(apart);
  EXPECT_NE(without.attend(0, view, {}, latent).body.to_floats(), seen.body.to_floats());
}

TEST(LocalAttention, CausalBlocksSeeThemselvesAndEarlierOnes) {
  const Geometry causal = one_site(false, false, 4), full = one_site(false, false);
  LocalAttention blocks(causal), all(full);
  const Heads h = heads_of(10, 21);
  const TokenView view{-1, {0}, {}, {{0, {0, 10}}}};
  const Tensor out = blocks.attend(0, view, {}, h).body;
  const TokenView first{-1, {0}, {}, {{0, {0, 4}}}};
  EXPECT_EQ(out.slice(0, 0, 4).to_floats(),
            all.attend(0, first, {}, slice(h, 0, 4)).body.to_floats());
  EXPECT_EQ(out.slice(0, 8, 10).to_floats(),
            all.attend(0, view, {}, h).body.slice(0, 8, 10).to_floats());
}

TEST(LocalAttention, RefusesARowInTwoPieces) {
  const Geometry g = one_site(false, false);
  LocalAttention attention(g);
  const TokenView view{-1, {0}, {}, {{0, {0, 2}}, {0, {2, 4}}}};
  EXPECT_THROW(attention.attend(0, view, {}, heads_of(4, 1)), Error);
}

}  // namespace
}  // namespace tessera::nn
