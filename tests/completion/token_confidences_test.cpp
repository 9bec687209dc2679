#include "completion/token_confidences.h"

#include <gtest/gtest.h>

namespace tessera::completion {
namespace {

constexpr int32_t kMask = 9;

TEST(TokenConfidences, AreKnownByPositionAndRow) {
  TokenConfidences said;
  sample::SequencePass pass{0, {}, {4, 5, 7}, {{5, 2, 0.5}, {7, 3, 0.25}}};
  std::vector<std::pair<int64_t, int32_t>> asked;
  EXPECT_EQ(said.take(pass, kMask,
                      [&](int64_t row, int32_t token) {
                        asked.emplace_back(row, token);
                        return Completion::Logprobs{{token, "", -1}, {}};
                      }),
            2);
  EXPECT_EQ(asked, (std::vector<std::pair<int64_t, int32_t>>{{1, 2}, {2, 3}}));
  EXPECT_EQ(said.at(7).confidence, 0.25);
  EXPECT_EQ(said.at(5).logprobs.token.id, 2);
  EXPECT_EQ(said.at(4).confidence, 0);
}

TEST(TokenConfidences, MoveWithTheirTokens) {
  TokenConfidences said;
  said.take({0, {}, {4, 5, 6}, {{4, 1, 0.5}, {5, 2, 0.6}, {6, 3, 0.7}}}, kMask, {});
  // A mask before the token at 4 moves the token by a place; a new word at 5 moves to 6.
  std::vector<int64_t> rows;
  const int64_t count =
      said.take({0, {}, {4, 5, 6}, {{4, kMask, 0, 0, true}, {5, 1, 0.5, 1, true}, {6, 8, 0.9, 1}}},
                kMask, [&](int64_t row, int32_t) {
                  rows.push_back(row);
                  return Completion::Logprobs();
                });
  EXPECT_EQ(count, 1);
  EXPECT_EQ(rows, (std::vector<int64_t>{1}));
  EXPECT_EQ(said.at(4).confidence, 0);
  EXPECT_EQ(said.at(5).confidence, 0.5);
  EXPECT_EQ(said.at(6).confidence, 0.9);
}

TEST(TokenConfidences, HaveTheirOwnBytes) {
  // Three tokens of a byte each, together the euro sign, and a special token.
  const auto json = base::Json::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "\u00e2": 1, "\u0124": 2, "\u00ac": 3}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "added_tokens": [{"id": 4, "content": "<|end|>", "special": true}]})");
  const tokenizer::ByteLevelBpe tokens(json, "tokenizer.json");
  std::string bytes;
  for (const int32_t id : {0, 1, 2, 3, 4}) bytes += logprob_of(&tokens, id, -1).bytes;
  EXPECT_EQ(bytes, "a\u20ac");
  const auto part = logprob_of(&tokens, 1, -0.5);
  EXPECT_EQ(part.id, 1);
  EXPECT_EQ(part.text, "\ufffd");
  EXPECT_EQ(part.bytes, "\xe2");
  EXPECT_EQ(part.logprob, -0.5);
  EXPECT_EQ(logprob_of(&tokens, 4, -1).text, "<|end|>");
  EXPECT_EQ(logprob_of(nullptr, 1, -1).text + logprob_of(nullptr, 1, -1).bytes, "");
}

}  // namespace
}  // namespace tessera::completion
