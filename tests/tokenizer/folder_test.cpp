#include "tokenizer/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/error.h"
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
      if (pixart) text = stripped(lowered(text));  // as its pipeline does
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
