#include "tokenizer/unigram.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

UnigramPieces some() {
  UnigramPieces p;
  p.pieces = {{"?", 0}, {"a", -2}, {"b", -2}, {"ab", -3}, {"abc", -9}};
  p.hidden = {true};
  return p;
}

TEST(Unigram, TakesTheMostProbable) {
  std::vector<int32_t> ids;
  Unigram(some(), "here").encode("abcab", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{4, 3}));
}

TEST(Unigram, UnknownNeighboursAreOneToken) {
  std::vector<int32_t> ids;
  Unigram(some(), "here")
      .encode(
          "xy\xc3\xa9"
          "axa",
          ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 0, 1}));
}

TEST(Unigram, SpellsItsTokens) {
  const Unigram model(some(), "here");
  for (int32_t id = 0; id < model.size(); ++id) EXPECT_EQ(model.id_of(model.text_of(id)), id);
  EXPECT_EQ(model.text_of(-1) + model.text_of(static_cast<int32_t>(model.size())), "");
}

TEST(Unigram, RefusesWhatDoesNotFit) {
  UnigramPieces p = some();
  p.byte_fallback = true;
  EXPECT_THROW(Unigram(p, "here"), Error);
  p = some();
  p.unknown = 9;
  EXPECT_THROW(Unigram(p, "here"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
