#include "sample/decode.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

using tensor::DType;
using tensor::Tensor;

// A forward pass that predicts token p % 7 at position p, with rising confidence.
struct Rig {
  std::vector<std::vector<int32_t>> passes;
  std::vector<Decoded> run(const std::vector<TokenPrompt>& prompts, const DecodingPolicy& policy,
                           const DecodeControl& control = {}) {
    const auto counting = [&](const TokenPass& pass) {
      EXPECT_EQ(pass.index, int(passes.size()));
      EXPECT_EQ(int64_t(pass.ids.size()), nn::token_count(pass.view.body));
      passes.push_back(pass.ids);
      Tensor x = Tensor::zeros({nn::token_count(pass.decide), 8}, DType::f32);
      int64_t row = 0;
      for (const nn::Segment& s : pass.decide)
        for (int64_t p = s.ids.begin; p < s.ids.end; ++p)
          x.row<float>(row++)[p % 7] = 1 + 0.1f * float(p);
      return x;
    };
    return decode(prompts, policy, {7, {}}, false, counting, control);
  }
};

TEST(Decode, FillsUnequalPromptsAndLeavesOutWhatHasEnded) {
  Rig rig;
  const auto out = rig.run({{{1, 1}, 2}, {{1}, 5}}, {.threshold = 2, .block = 8});
  EXPECT_EQ(out[0].ids, (std::vector<int32_t>{1, 1, 2, 3}));
  EXPECT_EQ(out[1].generated, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(out[0].passes, 2);
  EXPECT_EQ(out[1].passes, 5);
  EXPECT_EQ(rig.passes[0].size(), 10u);
  EXPECT_EQ(rig.passes[4].size(), 6u);
}

TEST(Decode, TellsTheCallerAndEndsWhenAsked) {
  Rig rig;
  int before = 0, after = 0;
  DecodeControl control;
  control.before = [&](const std::vector<SequencePass>& passes) { before += int(passes.size()); };
  control.after = [&](const SequencePass& p, const BlockWalk&, const Tensor& logits) {
    EXPECT_EQ(p.commits.size(), 1u);
    EXPECT_EQ(logits.size(0), 3 - after);  // only masks
    EXPECT_EQ(p.open.size(), size_t(3 - after));
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
  control.before = [&](const std::vector<SequencePass>&) { source.request_stop(); };
  try {
    rig.run({{{1}, 6}}, {.threshold = 2}, control);
    FAIL() << "ran on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(rig.passes.size(), 1u);
}

TEST(Decode, PromptsJoinBetweenPassesAndEachEndIsTold) {
  Rig rig;
  DecodeControl control;
  int asked = 0;
  std::vector<std::string> told;
  control.join = [&]() -> std::vector<TokenPrompt> {
    ++asked;
    if (asked == 2) return {{{1}, 5}};
    if (asked == 7) return {{{1, 1}, 2}, {{1}, 1}};  // when none is left at work
    return {};
  };
  control.ended = [&](int sequence, const Decoded& made) {
    told.push_back(std::to_string(sequence) + " after " + std::to_string(rig.passes.size()));
    EXPECT_EQ(made.generated.size(), std::vector<size_t>({2, 5, 2, 1})[size_t(sequence)]);
  };
  const DecodingPolicy policy{.threshold = 2, .block = 8};
  const auto out = rig.run({{{1, 1}, 2}}, policy, control);
  EXPECT_EQ(told, (std::vector<std::string>{"0 after 2", "1 after 6", "3 after 7", "2 after 8"}));
  const auto alone = Rig().run({{{1, 1}, 2}, {{1}, 5}, {{1, 1}, 2}, {{1}, 1}}, policy);
  ASSERT_EQ(out.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i].ids, alone[i].ids);
    EXPECT_EQ(out[i].passes, alone[i].passes);
  }
}

TEST(Decode, NoPromptsAreNoWork) { EXPECT_TRUE(Rig().run({}, {}).empty()); }

TEST(Decode, PredictsTheLengthsOfItsSequences) {
  const std::vector<TokenPrompt> prompts{{{1, 1}, 3}, {{}, 8}};
  const DecodingPolicy policy{.block = 4};
  EXPECT_EQ(sequence_lengths(prompts, policy, false), (std::vector<int64_t>{5, 8}));
  EXPECT_EQ(sequence_lengths(prompts, policy, true), (std::vector<int64_t>{8, 8}));
  EXPECT_THROW(sequence_lengths({{{1}, 0}}, policy, false), Error);
}

}  // namespace
}  // namespace tessera::sample
