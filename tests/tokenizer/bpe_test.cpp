#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(Bpe, MergesTheEarliestFirst) {
  BpeTables t;
  t.vocabulary = {{"a", 0}, {"b", 1}, {"c</w>", 2}, {"bc</w>", 3}, {"ab", 4}, {"?", 5}};
  t.merges = {{"b", "c</w>"}, {"a", "b"}};
  t.word_end = "</w>";
  t.unknown = "?";
  const Bpe bpe(t, "here");
  std::vector<int32_t> ids;
  bpe.encode("abc", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 3}));
  ids.clear();
  bpe.encode("abx", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{4, 5}));
  t.merges.emplace_back("c", "d");
  EXPECT_THROW(Bpe(t, "here"), Error);
}

TEST(Bpe, RefusesWhatTheVocabularyLacks) {
  BpeTables t;
  t.vocabulary = {{"a", 0}};
  const Bpe bpe(t, "here");
  std::vector<int32_t> ids;
  bpe.encode("a", ids);
  EXPECT_EQ(ids, std::vector<int32_t>{0});
  EXPECT_EQ(bpe.text_of(0), "a");
  EXPECT_EQ(bpe.text_of(1), "");
  EXPECT_THROW(bpe.encode("ab", ids), Error);
}

TEST(Bpe, BytesPrint) { EXPECT_EQ(bytes_as_characters("a \n"), "a\xc4\xa0\xc4\x8a"); }

}  // namespace
}  // namespace tessera::tokenizer
