#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/stop.h"
#include "tessera/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/formats.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
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
  EXPECT_EQ(t.encode_padded("a b a", 4).cut, 1);
  EXPECT_EQ(t.encode_padded("a b a", 5).cut, 0);
  EXPECT_EQ(t.encode_padded("a", 5).mask, (std::vector<int32_t>{1, 1, 1, 0, 0}));
  EXPECT_THROW(t.encode_padded("a", 1), Error);
}

// Reading a vocabulary and cutting a text of megabytes stop on request.
TEST(Tokenizer, EndsWhenItIsStopped) {
  const Tokenizer cut(some(), "here");
  TokenizerParts plain = some();
  plain.pre_tokenizer = parse_pre_tokenizer(base::Json(), "here");
  plain.added = {{"<m>", 7, true, true}};
  const Tokenizer searched(plain, "here");
  BpeTables pairs;
  pairs.vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}};
  pairs.merges = {{"a", "b"}};
  const Bpe bpe(pairs, "here");
  UnigramPieces pieces;
  pieces.pieces = {{"?", 0}, {"a", -2}};
  pieces.hidden = {true};
  const Unigram unigram(pieces, "here");
  const auto lower = parse_normalizer({{"type", "BertNormalizer"}}, "here");
  const auto json = base::parse_json(
      R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
      "t");
  std::vector<int32_t> ids;
  TextAllowance allowance(100);
  const std::pair<const char*, std::function<void()>> works[] = {
      {"pieces", [&] { cut.encode("a b"); }},
      {"added tokens", [&] { searched.encode("ab"); }},
      {"a pipeline's steps", [&] { lower("ab", allowance); }},
      {"merges", [&] { Bpe(pairs, "here"); }},
      {"merging", [&] { bpe.encode("ab", ids); }},
      {"unigram", [&] { unigram.encode("aa", ids); }},
      {"a vocabulary", [&] { parts_of_json(json, "t"); }},
      {"a regular expression", [&] { Regex("a", "here").matches("aa", allowance); }},
  };
  for (const auto& [name, work] : works) {
    EXPECT_NO_THROW(work()) << name;
    std::stop_source source;
    source.request_stop();
    const base::BindStop bind(source.get_token());
    try {
      work();
      ADD_FAILURE() << name << " went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled) << name << ": " << e.what();
    }
  }
}

}  // namespace
}  // namespace tessera::tokenizer
