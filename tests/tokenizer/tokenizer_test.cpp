#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tokenizer/wordpiece.h"

namespace tessera::tokenizer {
namespace {

TokenizerParts some() {
  TokenizerParts p;
  WordPieceTables t;
  t.vocabulary = {{"[UNK]", 0}, {"a", 1}, {"b", 2}, {"[S]", 3}};
  p.model = std::make_shared<WordPiece>(t, "here");
  p.normalizer = parse_normalizer(base::Json(), "here");
  p.pre_tokenizer = parse_pre_tokenizer({{"type", "WhitespaceSplit"}}, "here");
  p.before = {9};
  p.after = {8};
  return p;
}

TEST(Tokenizer, FindsAddedTokens) {
  TokenizerParts p = some();
  p.added = {{"[S]", 3}, {"<m>", 7, true, true}, {"b", 6, false, false, true}};
  const Tokenizer t(p, "here");
  EXPECT_EQ(t.encode("a[S]a <m> b"), (std::vector<int32_t>{9, 1, 3, 1, 7, 6, 8}));
  EXPECT_EQ(t.vocabulary(), 8);
  EXPECT_EQ(t.text_of(7), "<m>");
  EXPECT_EQ(t.text_of(1), "a");
  EXPECT_EQ(t.text_of(99), "");
}

TEST(Tokenizer, PadsAndCuts) {
  TokenizerParts p = some();
  EXPECT_THROW(Tokenizer(p, "here").encode_padded("a", 5), Error);
  p.padding = 0;
  const Tokenizer t(p, "here");
  EXPECT_EQ(t.encode_padded("a b a", 4).ids, (std::vector<int32_t>{9, 1, 2, 8}));
  EXPECT_EQ(t.encode_padded("a", 5).mask, (std::vector<int32_t>{1, 1, 1, 0, 0}));
  EXPECT_THROW(t.encode_padded("a", 1), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
