#include <fmt/format.h>

#include <memory>

#include "caption/caption.h"
#include "completion/answer_text.h"
#include "readers/inputs.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

// Readers that cut a prompt into tokens, and decode an answer.
namespace tessera::readers {
namespace {

using namespace tokenizer;
using base::Json;

Reader normal_form(const std::string& name, Form form, const std::string& first,
                   const std::string& marks) {
  return {name, [=](size_t bytes) {
            return [=, text = first + repeated(marks, bytes)] { normalized(text, form); };
          }};
}

TokenizerParts parts_of(std::shared_ptr<const Model> model, const Json& normalizer,
                        const Json& pre_tokenizer) {
  TokenizerParts parts;
  parts.model = std::move(model);
  parts.normalizer = parse_normalizer(normalizer, "test");
  parts.pre_tokenizer = parse_pre_tokenizer(pre_tokenizer, "test");
  return parts;
}

std::shared_ptr<const Model> letters() {
  WordPieceTables tables;
  tables.vocabulary = {{"[UNK]", 0}, {"a", 1}, {"##a", 2}};
  return std::make_shared<WordPiece>(tables, "test");
}

// Encodes `text`, made of some bytes.
Reader cutter(const std::string& name, TokenizerParts parts,
              const std::function<std::string(size_t)>& text) {
  const auto tokenizer = std::make_shared<Tokenizer>(std::move(parts), "test");
  return {name, [=](size_t bytes) { return [=, made = text(bytes)] { tokenizer->encode(made); }; }};
}

Reader cutter(const std::string& name, TokenizerParts parts, const std::string& part) {
  return cutter(name, std::move(parts), [=](size_t bytes) { return repeated(part, bytes); });
}

// Tokens of 1 to 512 letters, and of a letter more than the text contains.
std::shared_ptr<const Model> nested_words() {
  WordPieceTables tables;
  tables.vocabulary = {{"[UNK]", 0}, {"a", 1}, {"##a", 2}};
  for (int32_t i = 2; i < 500; ++i)
    tables.vocabulary["##" + std::string(size_t(i), 'a') + "b"] = i + 1;
  tables.longest_word = 1 << 20;
  return std::make_shared<WordPiece>(tables, "test");
}

std::shared_ptr<const Model> nested_pieces() {
  UnigramPieces pieces;
  pieces.pieces = {{"<unk>", 0}};
  for (size_t i = 1; i <= 160; ++i) pieces.pieces.emplace_back(std::string(i, 'a'), -1.0);
  pieces.hidden = {true};
  return std::make_shared<Unigram>(std::move(pieces), "test");
}

std::shared_ptr<const Model> doubling_merges() {
  BpeTables tables;
  tables.vocabulary = {{"a", 0}};
  std::string text = "a";
  for (int32_t i = 1; i < 12; ++i, text += text) {
    tables.vocabulary[text + text] = i;
    tables.merges.emplace_back(text, text);
  }
  return std::make_shared<Bpe>(std::move(tables), "test");
}

TokenizerParts with_added(std::initializer_list<AddedToken> tokens) {
  TokenizerParts parts = parts_of(letters(), Json(), {{"type", "WhitespaceSplit"}});
  parts.added = tokens;
  return parts;
}

TokenizerParts with_nested_added() {
  TokenizerParts parts = with_added({{"a", 1}});
  for (int32_t i = 2; i < 510; ++i) parts.added.add({std::string(size_t(i), 'a') + "b", i});
  return parts;
}

Json sequence(const char* of, const Json& steps) { return {{"type", "Sequence"}, {of, steps}}; }

Json split(const char* regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
}

void add_cutters(std::vector<Reader>& all) {
  const Json words = {{"type", "WhitespaceSplit"}};
  all.push_back(cutter("BPE of one long word", parts_of(doubling_merges(), Json(), Json()), "a"));
  all.push_back(cutter("WordPiece of nested tokens", parts_of(nested_words(), Json(), words), "a"));
  all.push_back(
      cutter("WordPiece of unknown words", parts_of(nested_words(), Json(), words), "x "));
  all.push_back(cutter("unigram of nested pieces", parts_of(nested_pieces(), Json(), Json()), "a"));
  all.push_back(cutter("nested added tokens", with_nested_added(), "a"));
  all.push_back(cutter("blanks between added tokens", with_added({{"<m>", 7, true, true}}),
                       std::string(1000, ' ') + "<m>"));
  all.push_back(
      cutter("added tokens that are words", with_added({{"<m>", 7, true, true, true}}), "<m>a"));
  all.push_back(cutter("marks under BertNormalizer",
                       parts_of(letters(), {{"type", "BertNormalizer"}}, words),
                       [](size_t bytes) { return "a" + repeated("\xcc\x81\xcc\xa7", bytes); }));
  for (const char* pattern : {"(a+)+b", "(a*)*b", "(a|aa)+$", "(?:a?){10}a{10}b"})
    for (const size_t length : {6, 10, 16})
      all.push_back(
          cutter(fmt::format("{} on pieces of {}", pattern, length),
                 parts_of(letters(), Json(),
                          sequence("pretokenizers", Json::array({split(" "), split(pattern)}))),
                 std::string(length, 'a') + " "));
  all.push_back(cutter(
      "a pattern that replaces between added tokens",
      [] {
        TokenizerParts parts = parts_of(
            letters(), {{"type", "Replace"}, {"pattern", {{"Regex", "(a*)*b"}}}, {"content", "x"}},
            Json());
        parts.added = {{"<m>", 7}};
        return parts;
      }(),
      "aaaaaaaaaa<m>"));
  Json grows = Json::array();
  for (int i = 0; i < 60; ++i)
    grows.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  all.push_back(cutter("steps that double",
                       parts_of(letters(), sequence("normalizers", grows), words), "a "));
}

void add_answers(std::vector<Reader>& all) {
  const auto json = base::parse_json(
      R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})",
      "test");
  const auto tokens = std::make_shared<ByteLevelBpe>(json, "test");
  all.push_back({"an answer token by token", [=](size_t bytes) {
                   return [=] {
                     const std::vector<std::string> stops = {std::string(100, 'a') + "b"};
                     completion::AnswerText answer(tokens.get(), stops);
                     std::vector<int32_t> ids;
                     ids.reserve(bytes);
                     for (size_t i = 0; i < bytes; ++i) {
                       ids.push_back(0);
                       if (i % 16 == 0) answer.advance(ids, false);
                     }
                     answer.advance(ids, true);
                   };
                 }});
}

}  // namespace

std::vector<Reader> text_readers() {
  std::vector<Reader> all = {
      normal_form("marks of two classes, NFC", Form::nfc, "a", "\xcc\x81\xcc\xa7"),
      normal_form("marks of two classes, NFKD", Form::nfkd, "a", "\xcc\x81\xcc\xa7"),
      normal_form("marks that decompose", Form::nfd, "a", "\xe0\xbd\xb3"),
      normal_form("marks by compatibility", Form::nfkc, "\xe3\x81\x8b", "\xef\xbe\x9e\xcc\xb4"),
      normal_form("Hangul", Form::nfc, "", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"),
  };
  add_cutters(all);
  add_answers(all);
  for (const char* part : {"a1", "a.com/", "&#", "<a ", "<![cdata[", "x@", "1:1 ", "\"'", "- "})
    all.push_back({fmt::format("a caption of {}", part),
                   [=](size_t bytes) {
                     return [text = repeated(part, bytes)] { caption::clean_caption(text); };
                   },
                   4990});
  return all;
}

}  // namespace tessera::readers
