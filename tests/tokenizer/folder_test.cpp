#include "tokenizer/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/error.h"
#include "test_paths.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

using base::Json;
namespace fs = std::filesystem;

std::string data() { return TESSERA_TEST_DATA "/diffusers"; }

// Every tokenizer of a case gives the golden ids and masks of all its strings.
int check_case(const fs::path& folder) {
  int strings = 0;
  const Json golden = base::read_json((folder / "tokenize.json").string());
  const bool bare = !fs::exists(folder / "model");
  const bool pixart = folder.filename().string().rfind("pixart", 0) == 0;
  for (const auto& [name, wanted] : golden["tokenizers"].items()) {
    const fs::path files = bare ? folder / name : folder / "model" / name;
    if (!fs::exists(files)) continue;
    const auto tokenizer = open_tokenizer(files.string());
    for (const Json& item : wanted["cases"]) {
      std::string text = item["text"];
      if (pixart) text = stripped(lowered(text));  // as in the pipeline of the model
      const Encoded got = tokenizer->encode_padded(text, wanted["max_length"]);
      EXPECT_EQ(got.ids, item["ids"].get<std::vector<int32_t>>())
          << files << " " << text.substr(0, 80);
      int64_t ones = 0;
      for (int32_t one : got.mask) ones += one;
      EXPECT_EQ(ones, item["mask_ones"]) << files;
      ++strings;
    }
  }
  return strings;
}

TEST(OpenTokenizer, GivesTheGoldenIdsOfEveryString) {
  std::vector<std::string> roots{data()};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    roots.push_back(std::string(more) + "/diffusers");
  int strings = 0;
  for (const std::string& root : roots)
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "tokenize.json")) strings += check_case(entry.path());
  EXPECT_GE(strings, 3 * 27);
}

// FLUX.1 as published: Metaspace with "first" and custom steps around the character map. The ids
// are those of transformers 5, which ignores both in the file of a T5.
TEST(OpenTokenizer, CutsForT5AsTransformersDoesWhateverTheFileSays) {
  const fs::path folder = fs::temp_directory_path() / "tessera-t5-tokenizer";
  fs::create_directories(folder);
  const auto write = [&](const char* file, const std::string& text) {
    std::ofstream(folder / file) << text;
  };
  write("tokenizer.json", R"({"added_tokens": [
      {"id": 0, "content": "<pad>"}, {"id": 1, "content": "</s>"}, {"id": 2, "content": "<unk>"},
      {"id": 10, "content": "<x>"}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Strip", "strip_left": false, "strip_right": true},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
      "add_prefix_space": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
      "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
    "model": {"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0], ["</s>", 0], ["<unk>", 0],
      ["\u2581", -2], ["a", -3], ["b", -3], ["c", -3], ["\u2581a", -2.5], ["\u2581b", -2.5],
      ["\u2581bc", -2.2], ["<x>", 0]]}})");
  write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "pad_token": "<pad>"})");
  const std::pair<const char*, std::vector<int32_t>> wanted[] = {
      {"a bc", {7, 9, 1}},      {"a  b", {7, 8, 1}},
      {" a ", {7, 1}},          {"", {1}},
      {"a</s>b", {7, 1, 8, 1}}, {"a <x>b c", {7, 10, 8, 3, 6, 1}},
      {"zz a", {3, 2, 7, 1}},   {"a\nb", {7, 8, 1}}};
  const auto tokenizer = open_tokenizer(folder.string());
  for (const auto& [text, ids] : wanted) EXPECT_EQ(tokenizer->encode(text), ids) << text;
  write("tokenizer_config.json", "{}");
  EXPECT_THROW(open_tokenizer(folder.string()), Error);
  fs::remove_all(folder);
}

// The ids are those of transformers 5.24: a text in the vocabulary keeps the vocabulary's id, other
// texts come after all, in the order of declarations.
TEST(OpenTokenizer, AnAddedTokenOfTheVocabularyKeepsItsId) {
  const fs::path folder = fs::temp_directory_path() / "tessera-added-tokens";
  const auto write = [&](const char* file, const std::string& text) {
    std::ofstream(folder / file) << text;
  };
  const auto body = [&](const std::string& text) {
    std::vector<int32_t> ids = open_tokenizer(folder.string())->encode(text);
    return std::vector<int32_t>(ids.begin() + 1, ids.end() - 1);
  };
  using Ids = std::vector<int32_t>;
  fs::remove_all(folder);
  fs::create_directories(folder);
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n##a\n##b\n##c\n");
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "added_tokens_decoder": {
    "0": {"content": "[PAD]", "special": true}, "7": {"content": "b", "special": true},
    "100": {"content": "<y>"}, "20": {"content": "<x>", "special": true},
    "3": {"content": "<z>", "special": true}}})");
  EXPECT_EQ(body("a b c"), (Ids{5, 6, 7}));
  EXPECT_EQ(body("<x><y><z>"), (Ids{12, 13, 11}));
  fs::remove_all(folder);
  fs::create_directories(folder);
  write("vocab.json", R"({"a": 0, "b": 1, "c": 2, "a</w>": 3, "b</w>": 4, "c</w>": 5, "ab</w>": 6,
    "<|startoftext|>": 7, "<|endoftext|>": 8})");
  write("merges.txt", "#version: 0.2\na b</w>\n");
  write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer", "added_tokens_decoder": {
    "9": {"content": "c</w>", "special": true}, "1": {"content": "c"},
    "12": {"content": "<x>", "special": true}, "8": {"content": "<|endoftext|>", "special": true}}})");
  EXPECT_EQ(body("a c b"), (Ids{3, 2, 4}));
  EXPECT_EQ(body("c</w>"), (Ids{5}));
  EXPECT_EQ(body("ab<x>"), (Ids{6, 9}));
  EXPECT_EQ(body("cab"), (Ids{2, 6}));
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path t5 = fs::path(data()) / "cogvideox_2b/model/tokenizer";
  fs::copy_file(t5 / "spiece.model", folder / "spiece.model");
  const auto plain = open_tokenizer(folder.string());
  const int32_t known = *plain->id_of("\u2581a"), last = *plain->id_of("<extra_id_0>");
  write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "added_tokens_decoder": {
    "5": {"content": "\u2581a"}, "6": {"content": "<x>", "special": true}}})");
  const auto added = open_tokenizer(folder.string());
  EXPECT_EQ(added->id_of("\u2581a"), known);
  EXPECT_EQ(added->id_of("<x>"), last + 1);
  EXPECT_EQ(added->id_of("<extra_id_0>"), last);
  EXPECT_EQ(added->id_of("<extra_id_99>"), last - 99);
}

TEST(OpenTokenizer, NamesWhatIsMissing) {
  const fs::path empty = fs::temp_directory_path() / "tessera-no-tokenizer";
  fs::create_directories(empty);
  try {
    open_tokenizer(empty.string());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("spiece.model"), std::string::npos);
  }
  fs::remove_all(empty);
}

TEST(OpenTokenizer, TakesALongPrompt) {
  for (const char* name : {"cogvideox_2b", "flux_transformers5_layout", "hunyuandit_v11"}) {
    const auto tokenizer = open_tokenizer(data() + "/" + name + "/model/tokenizer");
    for (const std::string& text : {std::string(100000, 'w'), std::string(100000, ' '),
                                    std::string(100000, '\xff'), std::string(1000, '\0')})
      EXPECT_EQ(tokenizer->encode_padded(text, 77).ids.size(), 77u);
  }
}

}  // namespace
}  // namespace tessera::tokenizer
