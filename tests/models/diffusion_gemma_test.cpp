#include "models/diffusion_gemma.h"

#include <gtest/gtest.h>

#include "models/named_noise.h"
#include "models/registry.h"
#include "models/token_configs.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"

namespace tessera::models {
namespace {

std::unique_ptr<nn::TokenModel> make(DType dtype = DType::f32) {
  const auto spec = language_model_of({diffusion_gemma_config(), "c"});
  return spec.make(NamedNoise(), spec.whole(), dtype, 0);
}

/// A sequence with a text to read, and a canvas to denoise after the text.
struct Sequence {
  explicit Sequence(const nn::TokenModel& model, int64_t tokens)
      : model_(model), attention_(model.geometry(), {{0, tokens}}) {}

  Tensor text(const std::vector<int32_t>& ids, int64_t begin) {
    const nn::TokenView view{
        -1, {0}, {}, {{0, {begin, begin + std::ssize(ids)}}}, {begin + std::ssize(ids)}};
    return blocks(model_.embed(ids, view), view);
  }
  Tensor canvas(const std::vector<int32_t>& ids, int64_t begin, const Tensor& earlier = {}) {
    nn::TokenView view{
        -1, {0}, {}, {{0, {begin, begin + std::ssize(ids)}}}, {begin + std::ssize(ids)}};
    view.canvas = {begin};
    nn::EarlierLogits logits;
    if (earlier.defined()) logits = {view.body, earlier};
    return blocks(model_.embed_canvas(ids, view, logits), view);
  }

 private:
  Tensor blocks(nn::Hidden hidden, const nn::TokenView& view) {
    const auto placement = model_.place(view);
    for (int b = 0; b < model_.geometry().blocks; ++b)
      model_.block(b, {}, *placement, hidden, {attention_, experts_});
    return model_.logits(hidden, view, view.body);
  }
  const nn::TokenModel& model_;
  nn::KvAttention attention_;
  nn::MoeLayers experts_;
};

const std::vector<int32_t> kText{3, 1, 4, 1, 5, 9, 2, 6}, kCanvas{7, 11, 13, 17, 19, 23};

TEST(DiffusionGemma, TextIsCausalAndMayBeReadInParts) {
  const auto model = make();
  Sequence whole(*model, 8), parts(*model, 8);
  const auto all = whole.text(kText, 0).to_floats();
  parts.text({3, 1, 4}, 0);
  const auto rest = parts.text({1, 5, 9, 2, 6}, 3).to_floats();
  EXPECT_EQ(std::vector<float>(all.begin() + 3 * 40, all.end()), rest);
}

TEST(DiffusionGemma, ACanvasSeesItselfAndSlidingLayersTheLastTokensBeforeIt) {
  const auto model = make();
  const auto logits = [&](std::vector<int32_t> text, const std::vector<int32_t>& canvas) {
    Sequence s(*model, 14);
    s.text(text, 0);
    return s.canvas(canvas, 8);
  };
  const auto usual = logits(kText, kCanvas);
  auto other = kCanvas;
  other.back() = 29;
  EXPECT_NE(usual.slice(0, 0, 1).to_floats(), logits(kText, other).slice(0, 0, 1).to_floats());
  auto text = kText;
  text[0] = 30;  // out of every window, seen by the global layer
  EXPECT_NE(usual.to_floats(), logits(text, kCanvas).to_floats());
}

TEST(DiffusionGemma, EarlierLogitsConditionTheNextPassOfTheirTokensAlone) {
  const auto model = make();
  const auto conditioned = [&](const Tensor& earlier) {
    Sequence s(*model, 14);
    s.text(kText, 0);
    return s.canvas(kCanvas, 8, earlier);
  };
  const Tensor first = conditioned({});
  EXPECT_NE(first.to_floats(), conditioned(first).to_floats());
  const nn::TokenView view{-1, {0}, {}, {{0, {8, 14}}}, {14}, nullptr, {8}};
  const auto alone = model->embed_canvas(kCanvas, view, {});
  const auto some = model->embed_canvas(kCanvas, view, {{{0, {8, 10}}}, first.slice(0, 0, 2)});
  EXPECT_NE(alone.tokens.body.slice(0, 0, 2).to_floats(),
            some.tokens.body.slice(0, 0, 2).to_floats());
  EXPECT_EQ(alone.tokens.body.slice(0, 2, 6).to_floats(),
            some.tokens.body.slice(0, 2, 6).to_floats());
}

TEST(DiffusionGemma, LogitsStayInsideTheCap) {
  const auto model = make(DType::bf16);
  Sequence s(*model, 14);
  s.text(kText, 0);
  for (const float x : s.canvas(kCanvas, 8).to_floats()) EXPECT_LT(std::abs(x), 30);
}

}  // namespace
}  // namespace tessera::models
