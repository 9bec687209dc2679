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

TEST(DitParts, TokensSeeTheTextOfTheirRow) {
  const Tensor q = of({1, 1}, {2, 1}), v = of({5, 7}, {2, 1});
  const auto spans = text_spans({{1, {0, 1}}, {0, {0, 1}}}, {{0, 1}, {1, 2}});
  const Tensor out = ops::attention(q, q, v, 1, 1, spans);
  EXPECT_FLOAT_EQ(out.to_floats()[0], 7);
  EXPECT_FLOAT_EQ(out.to_floats()[1], 5);
}

/// Tables provided at use, in bf16.
class ComingTables : public NamedNoise {
 public:
  explicit ComingTables(bool comes) : comes_(comes) {}
  Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    return ops::cast(NamedNoise::stored(name, shape), DType::bf16);
  }
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override {
    if (!comes_ || request.form != Form::table) return NamedNoise::fetch(request);
    return {.tensor = Tensor::empty(request.shape, DType::bf16, tensor::Device::meta),
            .at_use = [request] { return ComingTables(false).fetch(request); }};
  }

 private:
  bool comes_;
};

TEST(DitParts, RowsOfATableAreTheSameWhereItComesWhenItIsUsed) {
  const RowTable here(ComingTables(false), "table", {1, 5, 3}, 5, 3);
  const RowTable comes(ComingTables(true), "table", {1, 5, 3}, 5, 3);
  const int32_t rows[] = {4, 0, 4};
  EXPECT_TRUE(comes.defined());
  EXPECT_FALSE(RowTable().defined());
  EXPECT_EQ(here(rows).dtype(), DType::f32);
  EXPECT_EQ(comes(rows).to_floats(), here(rows).to_floats());
}

TEST(DitParts, HeadsOfBothStreamsAreWrittenBehindEachOther) {
  const NamedNoise weights;
  const auto projections = [&](bool normed) -> Projections {
    const auto head = [&](const char* name) -> NormedHeads {
      return {nn::Linear(weights, name, 4, 4, DType::f32),
              normed ? HeadNorm::rms(weights, std::string(name) + ".norm", 2) : HeadNorm()};
    };
    return {head("q"), head("k"), nn::Linear(weights, "v", 4, 4, DType::f32)};
  };
  const Tensor words = weights.get("text", {2, 4}), x = weights.get("image", {3, 4});
  const ops::RotaryTable none, angles{weights.get("cos", {3, 1}), weights.get("sin", {3, 1})};
  for (const bool normed : {false, true})
    for (const auto& turn : {none, angles}) {
      if (turn.cos.defined() && !normed) continue;
      const Projections p = projections(normed);
      const nn::Qkv room = p.room(x, 5);
      Projections::both(p, p, {words, x}, turn, room);
      const nn::Qkv text = p(words), body = p(x, turn);
      for (const auto of : {&nn::Qkv::q, &nn::Qkv::k, &nn::Qkv::v})
        EXPECT_EQ((room.*of).to_floats(), ops::concat_rows({text.*of, body.*of}).to_floats());
    }
  const nn::Qkv last = projections(false).room(x, 5, 2);  // without queries for text
  EXPECT_EQ(last.q.size(0), 3);
  EXPECT_EQ(part_of(last, 0, 2).q.size(0), 0);
  EXPECT_EQ(part_of(last, 0, 2).k.size(0), 2);
  EXPECT_EQ(part_of(last, 2, 5).q.raw(), last.q.raw());
}

TEST(DitParts, StreamsOfOneTensorStayTogether) {
  const Tensor both = of({1, 2, 3, 4, 5, 6}, {3, 2});
  const nn::Joint streams = apart(both, 1);
  EXPECT_EQ(streams.body.to_floats(), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(together(streams).raw(), both.raw());
  EXPECT_EQ(together({streams.body, streams.prefix}).to_floats(),
            (std::vector<float>{3, 4, 5, 6, 1, 2}));
}

TEST(DitParts, ABlocksModulationIsMadeOnceAStep) {
  const NamedNoise weights;
  const nn::Linear first(weights, "first", 6, 4, DType::f32),
      second(weights, "second", 6, 4, DType::f32);
  DitStep step;
  step.condition = weights.get("condition", {2, 4});
  const auto& made = step.of(3, {&first, &second});
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[1].to_floats(), second(step.condition).to_floats());
  EXPECT_EQ(&step.of(3, {&first, &second}), &made);
  EXPECT_NE(step.of(4, {&second})[0].raw(), made[1].raw());
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
  EXPECT_NE(usage_error([&] { batch_input(c, "text", 2, 3); }).find("expected floats [2, 3]"),
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
