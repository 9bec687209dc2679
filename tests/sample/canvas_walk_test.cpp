#include "sample/canvas_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/error.h"
#include "tessera/words.h"

namespace tessera::sample {
namespace {

constexpr int32_t kVocabulary = 8, kEnd = 5;
constexpr int64_t kTokens = 4;

DecodingPolicy policy() {
  DecodingPolicy p{.rule = DecodingPolicy::Rule::canvas, .cache = {KvCache::block}};
  p.block = int(kTokens);
  p.stop = StopAtEos::block;
  p.canvas.vocabulary = kVocabulary;
  return p;
}

std::unique_ptr<BlockWalk> walk(const DecodingPolicy& p, int64_t tokens = kTokens) {
  return canvas_walk({1, 2, 3}, tokens, p, {-1, {kEnd}}, 0);
}

// Logits for `said` with a weight of e^sharpness against 1 for each other token.
tensor::Tensor logits_for(const std::vector<int32_t>& said, float sharpness) {
  const auto x = tensor::Tensor::zeros({std::ssize(said), kVocabulary}, tensor::DType::f32);
  for (size_t i = 0; i < said.size(); ++i) x.row<float>(int64_t(i))[said[i]] = sharpness;
  return x;
}

// Runs a pass and returns the canvas.
std::vector<int32_t> step(BlockWalk& walk, const Pass& pass, const tensor::Tensor& logits) {
  OpenLogits in{.logits = logits, .mask = -1};
  for (int64_t i = pass.decide.begin; i < pass.decide.end; ++i) in.positions.push_back(i);
  in.held.resize(in.positions.size());
  walk.commit(pass, walk.rule().choose(in));
  return {walk.ids().begin() + pass.ids.begin, walk.ids().begin() + pass.ids.end};
}

TEST(CanvasWalk, EncodesThePromptDenoisesAndEncodesEachCanvasBeforeTheNext) {
  const auto w = walk(policy(), 2 * kTokens);
  const auto prefill = *w->next();
  EXPECT_EQ(prefill.kind, PassKind::prefill);
  EXPECT_EQ(prefill.ids, (Range{0, 3}));
  EXPECT_EQ(prefill.decide.size(), 0);
  w->commit(prefill, {});
  const std::vector<int32_t> said{0, 1, 2, 3};
  int passes = 0;
  auto pass = *w->next();
  for (; pass.kind == PassKind::block && pass.ids.begin == 3; pass = *w->next(), ++passes) {
    EXPECT_EQ(w->earlier() != nullptr, passes > 0);
    step(*w, pass, logits_for(said, 40));
  }
  EXPECT_EQ(passes, 2);  // the same answer twice, with confidence
  EXPECT_EQ(pass.kind, PassKind::finalise);
  EXPECT_EQ(pass.ids, (Range{3, 7}));
  EXPECT_EQ(w->generated(), said);
  EXPECT_EQ(w->earlier(), nullptr);
  w->commit(pass, {});
  for (pass = *w->next(); w->next(); pass = *w->next()) {
    EXPECT_EQ(pass.ids, (Range{7, 11}));
    step(*w, pass, logits_for(said, 40));
  }
  EXPECT_EQ(w->generated().size(), 8u);
  EXPECT_FALSE(w->ended());
}

TEST(CanvasWalk, AnEndOfTextEndsTheAnswerOnceItsCanvasIsFinished) {
  const auto w = walk(policy(), 3 * kTokens);
  w->commit(*w->next(), {});
  while (const auto pass = w->next()) step(*w, *pass, logits_for({0, kEnd, 2, 3}, 40));
  EXPECT_TRUE(w->ended());
  EXPECT_EQ(w->generated(), (std::vector<int32_t>{0, kEnd}));
}

TEST(CanvasWalk, StopsAfterItsMostPassesWithTheLikeliestTokens) {
  DecodingPolicy p = policy();
  p.canvas.max_denoising_steps = 3;
  const auto w = walk(p);
  w->commit(*w->next(), {});
  int passes = 0;
  std::vector<int32_t> canvas;
  while (const auto pass = w->next()) {
    canvas = step(*w, *pass, logits_for({3, 2, 1, passes}, 0.1f));
    ++passes;
  }
  EXPECT_EQ(passes, 3);
  EXPECT_EQ(canvas, (std::vector<int32_t>{3, 2, 1, 2}));
}

TEST(CanvasWalk, AcceptsTheSurestWhosePredecessorsSumToTheBound) {
  DecodingPolicy p = policy();
  auto draws = std::make_shared<CanvasDraws>();
  draws->init = tensor::Tensor::zeros({1, kTokens}, tensor::DType::i32);
  draws->noise = tensor::Tensor::zeros({48, kTokens}, tensor::DType::i32);
  for (int64_t i = 0; i < kTokens; ++i) draws->noise.row<int32_t>(0)[i] = 7;
  p.canvas.draws = draws;
  p.canvas.t_max = p.canvas.t_min = 1;
  const double whole = std::log(double(kVocabulary));  // entropy of a uniform position
  // Entropies about 0, `whole`, 0, `whole`: the bound admits a single unsure position.
  auto logits = logits_for({4, 0, 6, 0}, 40);
  for (const int64_t unsure : {1, 3}) logits.row<float>(unsure)[0] = 0;
  for (const auto& [bound, accepted] : std::map<double, std::vector<int32_t>>{
           {0, {4, 7, 7, 7}}, {whole / 2, {4, 0, 6, 7}}, {whole * 1.01, {4, 0, 6, 0}}}) {
    p.canvas.entropy_bound = bound;
    const auto w = walk(p);
    w->commit(*w->next(), {});
    const auto pass = *w->next();
    EXPECT_EQ(w->undecided(pass.decide), (std::vector<Range>{{3, 7}}));
    EXPECT_EQ(step(*w, pass, logits), accepted) << bound;
    int64_t open = 0;
    for (const Range& run : w->undecided(pass.decide)) open += run.size();
    EXPECT_EQ(open, std::ranges::count(accepted, 7)) << bound;
  }
}

TEST(CanvasWalk, DrawsDependOnSeedCanvasPassAndPositionAlone) {
  const auto first = [](uint64_t seed) {
    DecodingPolicy p = policy();
    p.seed = seed;
    const auto w = walk(p);
    return std::vector<int32_t>(w->ids().begin() + 3, w->ids().end());
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(CanvasWalk, FewerDrawsThanPassesAreRefused) {
  DecodingPolicy p = policy();
  auto draws = std::make_shared<CanvasDraws>();
  draws->init = tensor::Tensor::zeros({1, kTokens}, tensor::DType::i32);
  draws->noise = tensor::Tensor::zeros({1, kTokens}, tensor::DType::i32);
  p.canvas.draws = draws;
  const auto w = walk(p);
  w->commit(*w->next(), {});
  step(*w, *w->next(), logits_for({0, 1, 2, 3}, 0.1f));
  EXPECT_THROW(step(*w, *w->next(), logits_for({0, 1, 2, 3}, 0.1f)), Error);
}

}  // namespace
}  // namespace tessera::sample
