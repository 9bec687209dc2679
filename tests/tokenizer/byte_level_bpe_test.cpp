#include "tokenizer/byte_level_bpe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

std::string spelled(int byte) {  // GPT-2's character for a byte
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  int code = byte;
  if (!itself) {
    code = 256;
    for (int b = 0; b < byte; ++b)
      code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
  }
  std::string out;
  if (code < 128) return std::string(1, char(code));
  out.push_back(char(0xc0 | (code >> 6)));
  out.push_back(char(0x80 | (code & 63)));
  return out;
}

// All bytes, and merges that make "he", "ll", "hell" and " w".
Json small() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[spelled(b)] = b;
  const std::string space = spelled(' ');
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  vocab[space + "w"] = 259;
  return {{"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"l l", "h e", "he ll", space + " w"}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"added_tokens",
           {{{"id", 260}, {"content", "<|end|>"}, {"special", true}},
            {{"id", 261}, {"content", "<|end|>x"}, {"special", false}}}}};
}

std::string text_of(const ByteLevelBpe& bpe, const std::vector<int32_t>& ids) {
  std::string text;
  for (int32_t id : ids) text += bpe.bytes_of(id, false);
  return text;
}

TEST(ByteLevelBpe, MergesByRankWithinWords) {
  const ByteLevelBpe bpe(small(), "t");
  EXPECT_EQ(bpe.encode("hello"), (std::vector<int32_t>{258, 'o'}));
  EXPECT_EQ(bpe.encode("he w"), (std::vector<int32_t>{256, 259}));
  EXPECT_EQ(bpe.encode("lll"), (std::vector<int32_t>{257, 'l'}));  // the leftmost first
  EXPECT_TRUE(bpe.encode("").empty());
  EXPECT_EQ(bpe.size(), 262);
}

TEST(ByteLevelBpe, EveryTextComesBack) {
  const ByteLevelBpe bpe(small(), "t");
  for (const char* text :
       {"hello  world\n\n it's", "\xc3\xa9\xf0\x9f\x98\x80 \xe4\xb8\xad", "a\t1234 5"})
    EXPECT_EQ(text_of(bpe, bpe.encode(text)), text);
}

TEST(ByteLevelBpe, FindsAddedTokensLongestFirst) {
  const ByteLevelBpe bpe(small(), "t");
  EXPECT_EQ(bpe.encode("he<|end|>he<|end|>x"), (std::vector<int32_t>{256, 260, 256, 261}));
  EXPECT_EQ(bpe.bytes_of(260), "");
  EXPECT_EQ(bpe.bytes_of(260, false), "<|end|>");
  EXPECT_EQ(bpe.bytes_of(261), "<|end|>x");
  EXPECT_EQ(bpe.id_of("<|end|>"), 260);
  EXPECT_EQ(bpe.id_of("nothing"), -1);
  EXPECT_EQ(bpe.bytes_of(9999), "");
}

TEST(ByteLevelBpe, MarksOfToolCallsAndThoughtsStayInAnAnswer) {
  Json json = small();
  const char* const tokens[] = {"<|tool_call>", "<tool_call|>", "<|\"|>",          "<|channel>",
                                "<channel|>",   "<|turn>",      "<|tool_response>"};
  for (int i = 0; i < 7; ++i)
    json["added_tokens"].push_back({{"id", 300 + i}, {"content", tokens[i]}, {"special", true}});
  const ByteLevelBpe bpe(json, "t");
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(bpe.encode(tokens[i]), std::vector<int32_t>{300 + i});
    EXPECT_EQ(bpe.bytes_of(300 + i), i < 5 ? tokens[i] : "");
  }
}

// An id from the file is no place in memory: these lie behind everything, or leave gaps of
// millions.
TEST(ByteLevelBpe, TakesIdsThatLieAnywhere) {
  Json json = small();
  json["added_tokens"].push_back({{"id", 16000000}, {"content", "<|end|>"}, {"special", true}});
  const ByteLevelBpe twice(json, "t");
  EXPECT_EQ(twice.id_of("<|end|>"), 260);  // the first entry of a text counts
  EXPECT_EQ(twice.bytes_of(16000000), "");
  EXPECT_EQ(twice.size(), 262);
  json["added_tokens"].back()["content"] = "<|far|>";
  const ByteLevelBpe far(json, "t");
  EXPECT_EQ(far.encode("he<|far|>"), (std::vector<int32_t>{256, 16000000}));
  EXPECT_EQ(far.bytes_of(16000000, false), "<|far|>");
  EXPECT_EQ(far.bytes_of(15999999, false), "");
  EXPECT_EQ(far.bytes_of(-1, false), "");
}

TEST(ByteLevelBpe, SixtyThousandAddedTokensCostNoMoreThanTheirText) {
  Json json = small();
  for (int i = 0; i < 60000; ++i)
    json["added_tokens"].push_back({{"id", 300 + i}, {"content", fmt::format("<t{}>", i)}});
  const std::clock_t begin = std::clock();  // processor time, because others may load the machine
  const ByteLevelBpe bpe(json, "t");
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "<t59999><t";
  EXPECT_EQ(bpe.encode(text).size(), 20000u * 3);
  EXPECT_LT(std::clock() - begin, 15 * CLOCKS_PER_SEC);
}

TEST(ByteLevelBpe, SplitsByThePatternOfTheFile) {
  Json json = small();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", "\\p{N}|[^\\s\\p{N}]++"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  json["normalizer"] = {{"type", "NFC"}};
  const ByteLevelBpe bpe(json, "t");
  EXPECT_EQ(bpe.encode("he w"), (std::vector<int32_t>{256, ' ', 'w'}));
  EXPECT_EQ(text_of(bpe, bpe.encode("e\xcc\x81")), "\xc3\xa9");  // composed
}

TEST(ByteLevelBpe, NamesWhatIsMalformed) {
  const auto broken = [](auto change) {
    Json json = small();
    change(json);
    try {
      const ByteLevelBpe bpe(json, "x/tokenizer.json");
      ADD_FAILURE() << json.dump().substr(0, 80);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      EXPECT_NE(std::string(e.what()).find("x/tokenizer.json"), std::string::npos);
    }
  };
  broken([](Json& j) { j.erase("model"); });
  broken([](Json& j) { j["model"]["type"] = "Unigram"; });
  broken([](Json& j) { j["model"]["merges"].push_back("zz yy"); });
  broken([](Json& j) { j["model"]["merges"].push_back(7); });
  broken([](Json& j) { j["model"]["vocab"]["q!"] = "seven"; });
  broken([](Json& j) { j["model"]["vocab"]["q!"] = -1; });
  broken([](Json& j) { j["added_tokens"].push_back({{"id", 7}}); });
  broken([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; });
  broken([](Json& j) { j["normalizer"] = {{"type", "Loud"}}; });
  broken([](Json& j) {
    j["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  });
}

TEST(ByteLevelBpe, RefusesBytesThatAreNoText) {
  const ByteLevelBpe bpe(small(), "t");
  EXPECT_THROW(bpe.encode("\xff"), Error);
}

TEST(ByteLevelBpe, CharactersWithATokenForEachByteAreThoseOfTheReference) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/moe/diffusion_gemma_text/";
  const std::string file = folder + "model/tokenizer.json";
  const ByteLevelBpe bpe(base::read_json(file), file);
  const Json cases = base::read_json(folder + "case.json").at("tokenize");
  EXPECT_EQ(cases.size(), 12u);
  for (const Json& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = bpe.encode_alone(text);
    EXPECT_EQ(ids, one.at("ids").get<std::vector<int32_t>>()) << text;
    std::string bytes;
    for (const int32_t id : ids) bytes += bpe.bytes_of(id);
    EXPECT_EQ(bytes, one.at("decoded").get<std::string>()) << text;
  }
}

TEST(WholeCharacters, StopsBeforeHalfACharacter) {
  EXPECT_EQ(whole_characters("ab\xc3\xa9"), 4u);
  EXPECT_EQ(whole_characters("ab\xc3"), 2u);
  EXPECT_EQ(whole_characters("\xf0\x9f\x98"), 0u);
}

TEST(Readable, NeverShowsHalfACharacterAndRepairsWhatIsNone) {
  EXPECT_EQ(readable("a\xc3", false), "a");
  EXPECT_EQ(readable("a\xc3", true), "a\xef\xbf\xbd");
  EXPECT_EQ(readable("\xff"
                     "b",
                     false),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(readable("a\xf0\x9f\x98\x80", false), "a\xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace tessera::tokenizer
