#include "sample/decode.h"

#include <gtest/gtest.h>

#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "tessera/error.h"

namespace tessera::sample {
namespace {

using tensor::DType;
using tensor::Tensor;

// Says that position p holds token p % 7, surer the later it stands.
class Counting : public nn::TokenModel {
 public:
  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return DType::f32; }
  int64_t vocabulary() const override { return 8; }
  nn::PlacementPtr place(const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView&) const override {
    passes.emplace_back(ids.begin(), ids.end());
    return {};
  }
  void block(int, const nn::StepContext&, const nn::Placement&, nn::Hidden&,
             const nn::Seams&) const override {}
  Tensor logits(const nn::Hidden&, const nn::TokenView&, const nn::Segments& of) const override {
    Tensor x = Tensor::zeros({nn::token_count(of), 8}, DType::f32);
    int64_t row = 0;
    for (const nn::Segment& s : of)
      for (int64_t p = s.ids.begin; p < s.ids.end; ++p)
        x.row<float>(row++)[p % 7] = 1 + 0.1f * float(p);
    return x;
  }
  mutable std::vector<std::vector<int32_t>> passes;

 private:
  nn::Geometry geometry_;
};

// A block after which tokens from some position on are no numbers, though logits would be.
class Spoilt : public Counting {
 public:
  explicit Spoilt(int block) : block_(block) { geometry_.blocks = 3; }
  const nn::Geometry& geometry() const override { return geometry_; }
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView&) const override {
    return {.tokens = {.prefix = {},
                       .body = Tensor::zeros({static_cast<int64_t>(ids.size()), 4}, DType::bf16)},
            .skips = {}};
  }
  void block(int index, const nn::StepContext&, const nn::Placement&, nn::Hidden& hidden,
             const nn::Seams&) const override {
    if (index >= block_) hidden.tokens.body.row<uint16_t>(0)[2] = 0x7fc0;
  }

 private:
  nn::Geometry geometry_;
  int block_;
};

struct Rig {
  Counting model;
  nn::LocalAttention attention{model.geometry()};
  nn::MoeLayers experts;
  std::vector<Decoded> run(const std::vector<TokenPrompt>& prompts, const DecodingPolicy& policy,
                           const DecodeControl& control = {}) {
    return decode(model, prompts, policy, {7, {}}, false, {attention, experts}, control);
  }
};

TEST(Decode, FillsUnequalPromptsAndLeavesOutWhatHasEnded) {
  Rig rig;
  const auto out = rig.run({{{1, 1}, 2}, {{1}, 5}}, {.threshold = 2, .block = 8});
  EXPECT_EQ(out[0].ids, (std::vector<int32_t>{1, 1, 2, 3}));
  EXPECT_EQ(out[1].generated, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(out[0].passes, 2);
  EXPECT_EQ(out[1].passes, 5);
  EXPECT_EQ(rig.model.passes[0].size(), 10u);
  EXPECT_EQ(rig.model.passes[4].size(), 6u);
}

TEST(Decode, TellsTheCallerAndEndsWhenAsked) {
  Rig rig;
  int before = 0, after = 0;
  DecodeControl control;
  control.before = [&](const std::vector<RowPass>& passes) { before += int(passes.size()); };
  control.after = [&](const RowPass& p, const BlockWalk&, const Tensor& logits) {
    EXPECT_EQ(p.commits.size(), 1u);
    EXPECT_EQ(logits.size(0), p.pass.decide.size());
    return ++after < 2;
  };
  const auto out = rig.run({{{}, 6}}, {.threshold = 2, .block = 3}, control);
  EXPECT_EQ(before, 2);
  EXPECT_EQ(out[0].generated.size(), 0u);  // positions 2 and 1 came first
}

TEST(Decode, StopsWithinAPass) {
  Rig rig;
  std::stop_source source;
  DecodeControl control;
  control.stop = source.get_token();
  control.before = [&](const std::vector<RowPass>&) { source.request_stop(); };
  try {
    rig.run({{{1}, 6}}, {.threshold = 2}, control);
    FAIL() << "ran on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(rig.model.passes.size(), 1u);
}

TEST(Decode, NoPromptsAreNoWork) { EXPECT_TRUE(Rig().run({}, {}).empty()); }

TEST(Decode, NamesTheBlockThatSpoilsThePass) {
  const auto said = [](int block) {
    Spoilt model(block);
    nn::LocalAttention attention{model.geometry()};
    nn::MoeLayers experts;
    try {
      decode(model, {{{1, 1}, 2}}, {.threshold = 2, .block = 8}, {7, {}}, false,
             {attention, experts});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_TRUE(said(0).starts_with("block 0 of the model")) << said(0);
  EXPECT_TRUE(said(2).starts_with("block 2 of the model")) << said(2);
  EXPECT_EQ(said(3), "");
}

}  // namespace
}  // namespace tessera::sample
