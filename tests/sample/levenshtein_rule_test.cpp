#include "sample/levenshtein_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sample/block_walk.h"
#include "sample/levenshtein_reference.h"

namespace tessera::sample {
namespace {

constexpr int32_t kMask = 12, kRemove = 14, kSplit = 15;
constexpr int64_t kVocabulary = 20;
const SpecialIds kSpecial{kMask, {13}, kRemove, kSplit};

using Ids = std::vector<int32_t>;

/// A model's predictions for a block: the likeliest token of each position, its probability, and
/// the second token.
struct Words {
  Ids first;
  std::vector<double> confidence{};  // empty: 0.95 each
  Ids second{};                      // empty: all others are equal
};
using Model = std::function<Words(const Ids& block)>;

tensor::Tensor logits_of(const Words& words) {
  const auto n = static_cast<int64_t>(words.first.size());
  tensor::Tensor logits = tensor::Tensor::empty({n, kVocabulary}, tensor::DType::f32);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const double c = words.confidence.empty() ? 0.95 : words.confidence[at];
    for (int64_t v = 0; v < kVocabulary; ++v)
      logits.row<float>(i)[v] = float(std::log((1 - c) / double(kVocabulary - 2)));
    logits.row<float>(i)[kMask] = -20;
    if (!words.second.empty()) logits.row<float>(i)[words.second[at]] += 0.1f;
    logits.row<float>(i)[words.first[at]] = float(std::log(c));
  }
  return logits;
}

struct Told {
  Ids block;
  int passes = 0;
  std::vector<double> confidence{};  // confidence of current tokens, from the commits
};

DecodingPolicy policy_of(int steps, double editing, int posts) {
  DecodingPolicy p{.rule = DecodingPolicy::Rule::edit, .steps = steps, .threshold = 0.5};
  p.editing = editing;
  p.posts = posts;
  return p;
}

/// Runs the passes over a block after `prompt` fixed tokens; by logits [tokens, vocabulary].
Told decoded_by(Ids block, const std::function<tensor::Tensor(const Ids&)>& model,
                const DecodingPolicy& policy, size_t prompt) {
  const auto rule = levenshtein_rule(policy, kSpecial);
  rule->begin_block(std::count(block.begin(), block.end(), kMask));
  Told told{block, 0, std::vector<double>(block.size())};
  do {
    OpenLogits in{{}, {block.begin() + int64_t(prompt), block.end()}, {}, kMask};
    for (size_t i = prompt; i < block.size(); ++i) in.positions.push_back(int64_t(i));
    const auto n = static_cast<int64_t>(block.size());
    in.logits = model(block).slice(0, int64_t(prompt), n);
    const std::vector<double> before = told.confidence;
    for (const Prediction& p : rule->choose(in)) {
      block[size_t(p.position)] = p.token;
      if (p.moved && p.token != kMask) {
        EXPECT_EQ(p.confidence, before[size_t(p.position - p.shift)]) << p.position;
      }
      told.confidence[size_t(p.position)] = p.confidence;
    }
    ++told.passes;
  } while (rule->goes_on().value() && told.passes < 1001);
  EXPECT_LE(told.passes, 1000);
  told.block = block;
  return told;
}

Told decoded(Ids block, const Model& model, const DecodingPolicy& policy, size_t prompt = 0) {
  return decoded_by(
      std::move(block), [&](const Ids& b) { return logits_of(model(b)); }, policy, prompt);
}

Ids filled(Ids block, const Ids& target) {
  for (size_t i = 0; i < block.size(); ++i)
    if (block[i] == kMask) block[i] = target[i];
  return block;
}
bool has_masks(const Ids& block) { return std::count(block.begin(), block.end(), kMask) > 0; }

const Ids kTarget{3, 4, 5, 6, 7, 8, 9, 10};
const Ids kMasks(8, kMask);

TEST(LevenshteinRule, FillsABlockThatItThenLeavesAsItIs) {
  const auto told = decoded(
      kMasks, [](const Ids& b) { return Words{filled(b, kTarget)}; }, policy_of(8, 0, 16));
  EXPECT_EQ(told.block, kTarget);
  EXPECT_EQ(told.passes, 2);
}

TEST(LevenshteinRule, FillsTheSharesOfAScheduleWhereNothingIsSure) {
  std::vector<int64_t> left;
  const auto model = [&](const Ids& b) {
    left.push_back(std::count(b.begin(), b.end(), kMask));
    Words words{filled(b, kTarget)};
    for (size_t i = 0; i < b.size(); ++i) words.confidence.push_back(0.3 + 0.01 * double(i));
    return words;
  };
  EXPECT_EQ(decoded(kMasks, model, policy_of(3, 0.5, 16)).block, kTarget);
  EXPECT_EQ(left, (std::vector<int64_t>{8, 5, 2, 0}));  // 8 in 3 shares
}

TEST(LevenshteinRule, RemovesAPositionAndFillsTheEnd) {
  const Ids after{3, 4, 6, 7, 8, 9, 10};
  const auto told = decoded(
      kMasks,
      [&](const Ids& b) {
        Words words{b == kTarget ? kTarget : filled(b, kTarget)};
        if (b == kTarget) words.first[2] = kRemove;
        if (has_masks(b) && b[2] == 6) words.first[7] = 11;
        return words;
      },
      policy_of(8, 0.5, 16));
  Ids want = after;
  want.push_back(11);
  EXPECT_EQ(told.block, want);
  EXPECT_EQ(told.passes, 4);
}

TEST(LevenshteinRule, PutsAMaskBeforeWhatStood) {
  const auto told = decoded(
      kMasks,
      [&](const Ids& b) {
        Words words{filled(b, kTarget)};
        if (b == kTarget) words.first[2] = kSplit;
        if (has_masks(b) && b[3] == 5) words.first[2] = 11;
        return words;
      },
      policy_of(8, 0.5, 16));
  EXPECT_EQ(told.block, (Ids{3, 4, 11, 5, 6, 7, 8, 9}));
}

TEST(LevenshteinRule, EditsOfAMaskMoveTheMasksBehindIt) {
  int pass = 0;
  const auto told = decoded(
      {3, kMask, kMask, kMask, kMask},
      [&](const Ids& b) {
        Words words{filled(b, {3, 5, 6, 7, 8})};
        if (pass++ == 0) words.first = {3, kSplit, kRemove, 7, 8};
        return words;
      },
      policy_of(5, 0, 2), 1);
  // After the first pass: 3, a new mask, the split first mask, 7, 8.
  EXPECT_EQ(told.block, (Ids{3, 5, 6, 7, 8}));
  EXPECT_EQ(told.passes, 3);
}

TEST(LevenshteinRule, LeavesThePromptOfABlockAlone) {
  const auto told = decoded(
      {kRemove, kSplit, kMask, kMask},
      [](const Ids&) {
        return Words{{9, 9, 3, 4}};
      },
      policy_of(4, 0, 2), 2);
  EXPECT_EQ(told.block, (Ids{kRemove, kSplit, 3, 4}));
}

// Every pass changes another token, up to the last allowed pass.
TEST(LevenshteinRule, EndsAfterSoManyPassesWithoutFirstMasks) {
  const auto model = [](const Ids& b) {
    Words words{filled(b, {1, 2, 3, 4})};
    if (!has_masks(b)) words.first[0] = b[0] >= 16 ? 16 + (b[0] - 15) % 4 : 16;
    return words;
  };
  EXPECT_EQ(decoded({kMask, kMask, kMask, kMask}, model, policy_of(4, 0, 3)).passes, 4);
}

TEST(LevenshteinRule, WithoutSuchPassesItEndsWithItsLastFirstMask) {
  const auto told = decoded(
      kMasks, [](const Ids& b) { return Words{filled(b, kTarget)}; }, policy_of(8, 0, 0));
  EXPECT_EQ(told.block, kTarget);
  EXPECT_EQ(told.passes, 1);
}

TEST(LevenshteinRule, ItEndsWhereTheLastFirstMaskFallsOffTheEnd) {
  const auto model = [](const Ids& b) {
    if (b[1] == kMask && b[0] == kMask) return Words{{4, 5, 6}, {0.3, 0.4, 0.2}};
    if (b[0] == kMask) return Words{{4, kSplit, 6}, {0.3, 0.9, 0.2}};
    return Words{filled(b, {4, 7, 5}), {0.9, 0.9, 0.9}};
  };
  EXPECT_LE(decoded({kMask, kMask, kMask}, model, policy_of(8, 0, 0)).passes, 3);
}

TEST(LevenshteinRule, ItsLastPassSaysNoEdit) {
  for (const int32_t edit : {kRemove, kSplit}) {
    const auto told = decoded(
        {kMask, kMask, kMask, kMask},
        [&](const Ids& b) {
          Words words{filled(b, {1, 2, 3, 4}), {}, {5, 6, 7, 8}};
          if (!has_masks(b)) words.first[1] = edit;
          return words;
        },
        policy_of(4, 0, 1));
    EXPECT_EQ(told.block, (Ids{1, 6, 3, 4}));
    EXPECT_EQ(told.passes, 2);
    EXPECT_NEAR(told.confidence[1], 0.05 / 18 * std::exp(0.1), 1e-3);
  }
}

// Two tokens that edit each other: an earlier state of the block is not repeated.
TEST(LevenshteinRule, SaysSomethingElseInsteadOfWhatItSaidBefore) {
  std::vector<Ids> seen;
  const auto told = decoded(
      {kMask, kMask},
      [&](const Ids& b) {
        seen.push_back(b);
        if (has_masks(b)) return Words{{1, 2}, {0.9, 0.8}};
        if (b == Ids{1, 2}) return Words{{3, 4}, {0.9, 0.8}, {9, 9}};
        if (b == Ids{3, 4}) return Words{{1, 2}, {0.9, 0.8}, {9, 5}};
        return Words{b};
      },
      policy_of(2, 0, 16));
  EXPECT_EQ(told.block, (Ids{1, 5}));  // the least sure change, by its second choice
  EXPECT_EQ(seen.size(), 4u);
}

TEST(LevenshteinRule, ForgetsABlockWithTheNext) {
  const auto rule = levenshtein_rule(policy_of(8, 0, 16), kSpecial);
  for (int block = 0; block < 2; ++block) {
    rule->begin_block(8);
    const OpenLogits in{{0, 1, 2, 3, 4, 5, 6, 7}, kMasks, logits_of({kTarget, {}, kMasks}), kMask};
    Ids said;
    for (const Prediction& p : rule->choose(in)) said.push_back(p.token);
    EXPECT_EQ(said, kTarget) << block;
  }
}

TEST(LevenshteinRule, AlwaysEnds) {
  for (const int32_t edit : {kRemove, kSplit})
    for (const int posts : {0, 1, 50}) {
      const auto told = decoded(
          kMasks,
          [&](const Ids&) {
            return Words{Ids(8, edit), {}, kTarget};
          },
          policy_of(8, 0, posts));
      EXPECT_FALSE(has_masks(told.block)) << edit << ", " << posts;
      EXPECT_LE(told.passes, posts < 50 ? 4 : 1000) << edit << ", " << posts;
      EXPECT_EQ(std::count(told.block.begin(), told.block.end(), edit), 0);
    }
}

TEST(LevenshteinRule, IsWhatItIsWordByWord) {
  std::mt19937 draw(3);
  const auto one_of = [&](auto list) { return *(list.begin() + draw() % list.size()); };
  int many = 0;
  for (int i = 0; i < 3000; ++i) {
    Ids block(4 + draw() % 8, kMask);
    const size_t prompt = draw() % 3;
    for (size_t j = 0; j < prompt; ++j)
      block[j] = one_of(std::initializer_list<int32_t>{1, kRemove, kSplit});
    using Doubles = std::initializer_list<double>;
    DecodingPolicy policy =
        policy_of(int(draw() % (block.size() + 1)), one_of(Doubles{0, 0.3, 0.5, 2}),
                  one_of(std::initializer_list<int>{0, 1, 2, 3, 16}));
    policy.block = int(block.size());
    policy.threshold = one_of(Doubles{0, 0.3, 0.5, 0.9, 2});
    const RandomModel model{uint32_t(i), kVocabulary, one_of(Doubles{0.5, 1, 2}),
                            one_of(Doubles{0, 0.1, 0.3, 0.6})};
    const PlainResult want = PlainLevenshtein(block, prompt, model, policy, kSpecial).run();
    const Told told = decoded_by(
        block,
        [&](const Ids& b) {
          std::vector<float> all;
          for (const auto& row : model(b, kSpecial)) all.insert(all.end(), row.begin(), row.end());
          return tensor::Tensor::from(std::span<const float>(all),
                                      {int64_t(b.size()), kVocabulary});
        },
        policy, prompt);
    ASSERT_EQ(told.block, want.block) << i;
    ASSERT_EQ(told.passes, want.passes) << i;
    for (size_t j = 0; j < block.size(); ++j)
      ASSERT_NEAR(told.confidence[j], want.confidence[j], 1e-9) << i;
    many += want.passes > 12;
  }
  EXPECT_GT(many, 100);  // blocks with many edits
}

TEST(LevenshteinRule, IsTheRuleThatEditsWhereAModelEditsLengths) {
  DecodingPolicy policy{.rule = DecodingPolicy::Rule::edit};
  EXPECT_TRUE(unmasking_policy(policy, kSpecial)->goes_on().has_value());
  EXPECT_FALSE(unmasking_policy(policy, {kMask, {13}})->goes_on().has_value());
  policy.repetition_penalty = 1.1;
  EXPECT_TRUE(unmasking_policy(policy, kSpecial)->goes_on().has_value());
  EXPECT_FALSE(unmasking_policy({}, kSpecial)->goes_on().has_value());
}

}  // namespace
}  // namespace tessera::sample
