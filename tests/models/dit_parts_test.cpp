#include "models/dit_parts.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

Tensor of(const std::vector<float>& values, const tensor::Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(DitParts, TextIsPackedWithoutItsPadding) {
  const Tensor tokens = of({1, 2, 3, 4, 5, 6}, {6, 1});
  const std::vector<int32_t> mask{1, 1, 0, 1, 0, 0};
  const PackedText text = pack_text(tokens, Tensor::from(std::span<const int32_t>(mask), {2, 3}));
  EXPECT_EQ(text.tokens.to_floats(), (std::vector<float>{1, 2, 4}));
  EXPECT_EQ(text.spans, (std::vector<nn::Range>{{0, 2}, {2, 3}}));
  const PackedText of_floats = pack_text(tokens, of({0, 1, 1, 0, 0, 1}, {2, 3}));
  EXPECT_EQ(of_floats.tokens.to_floats(), (std::vector<float>{2, 3, 6}));
  EXPECT_TRUE(pack_text(tokens, {}).spans.empty());
}

TEST(DitParts, CrossAttentionReadsTheTextOfItsRow) {
  const Tensor q = of({1, 1}, {2, 1}), v = of({5, 7}, {2, 1});
  const nn::Segments body{{1, {0, 1}}, {0, {0, 1}}};
  const Tensor out = cross_attention(q, q, v, 1, body, {{0, 1}, {1, 2}});
  EXPECT_FLOAT_EQ(out.to_floats()[0], 7);
  EXPECT_FLOAT_EQ(out.to_floats()[1], 5);
}

TEST(DitParts, InputsAreCheckedByName) {
  nn::Conditioning c;
  int64_t length = 0;
  EXPECT_NE(
      usage_error([&] { text_input(c, "text", 1, 2, &length); }).find("'text' [1, tokens, 2]"),
      std::string::npos);
  c.tensors["text"] = of({1, 2, 3, 4}, {1, 2, 2});
  EXPECT_EQ(text_input(c, "text", 1, 2, &length).shape(), (tensor::Shape{2, 2}));
  EXPECT_EQ(length, 2);
  EXPECT_NE(usage_error([&] { row_input(c, "text", 2, 3); }).find("expected floats [2, 3]"),
            std::string::npos);
}

TEST(DitParts, AHeadEmitsTheChannelSlowest) {
  const NamedNoise weights;
  const Tensor x = weights.get("x", {3, 5});
  const auto plain = PatchHead(weights, 4, 2, 5, false, DType::f32)(x).to_floats();
  const auto turned = PatchHead(weights, 4, 2, 5, true, DType::f32)(x).to_floats();
  EXPECT_EQ(turned[1], plain[2]);  // pixel 1, channel 0
  EXPECT_EQ(turned[4], plain[1]);  // pixel 0, channel 1
}

}  // namespace
}  // namespace tessera::models
