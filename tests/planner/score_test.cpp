#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "tessera/error.h"
#include "tessera/prediction.h"

namespace tessera {
namespace {

/// A file, removed after the test.
struct Published {
  explicit Published(const std::string& text)
      : path(std::filesystem::temp_directory_path() / "tessera_score_test.json") {
    std::ofstream(path) << text;
  }
  ~Published() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

std::vector<base::Json> lines_of(const std::string& text) {
  const Published file(text);
  std::vector<base::Json> lines;
  score_predictions(file.path.string(), 1,
                    [&](const std::string& line) { lines.push_back(base::Json::parse(line)); });
  return lines;
}

TEST(Score, GivesALineForEachRowAndASummary) {
  const auto lines = lines_of(R"({"rows": [
    {"id": "a", "metric": "latency", "model": "PixArt-alpha", "hardware": "A100-80G NVLink",
     "world": 1, "plan": {}, "width": 4096, "height": 4096, "steps": 20, "value": 186},
    {"id": "b", "metric": "fid", "value": 1}], "orderings": []})");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("id"), "a");
  EXPECT_LT(std::abs(lines[0].at("error").get<double>()), 0.25);
  EXPECT_TRUE(lines[1].contains("skipped"));
  EXPECT_EQ(lines[2].at("rows_scored"), 1);
  EXPECT_EQ(lines[2].at("rows_skipped"), 1);
}

TEST(Score, RefusesFilesOfAnotherForm) {
  for (const char* text :
       {"[]", "{}", R"({"rows": [{}]})", R"({"rows": [{"id": "a"}, {"id": "a"}]})"})
    EXPECT_THROW(lines_of(text), Error) << text;
}

}  // namespace
}  // namespace tessera
