#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/fail.h"
#include "base/json.h"
#include "tessera/error.h"
#include "tessera/prediction.h"

namespace tessera {
namespace {

/// A file that is gone with the test.
struct Published {
  explicit Published(const std::string& text)
      : path(std::filesystem::temp_directory_path() / "tessera_score_test.json") {
    std::ofstream(path) << text;
  }
  ~Published() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

std::vector<base::Json> lines_of(const std::string& text, int threads = 1) {
  const Published file(text);
  std::vector<base::Json> lines;
  score_predictions(file.path.string(), threads,
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

TEST(Score, ThreadsChangeNothing) {
  std::string rows;
  for (const int side : {512, 1024, 2048})
    for (const char* model : {"PixArt-alpha", "nobody's", "SD3-medium"})
      rows += fmt::format(R"({}{{"id": "{}{}", "metric": "latency", "model": "{}", "value": 1,
          "hardware": "A100-80G NVLink", "world": 1, "plan": {{}}, "width": {}, "height": {},
          "steps": 4}})",
                          rows.empty() ? "" : ",", model, side, model, side, side);
  const std::string text = R"({"rows": [)" + rows + "]}";
  const auto one = lines_of(text, 1);
  EXPECT_EQ(lines_of(text, 3), one);
  ASSERT_EQ(one.size(), 10u);
  EXPECT_EQ(one[0].at("id"), "PixArt-alpha512");
  EXPECT_EQ(one.back().at("rows_skipped"), 3);
}

TEST(Score, RefusesFilesOfAnotherForm) {
  for (const char* text :
       {"[]", "{}", R"({"rows": [{}]})", R"({"rows": [{"id": "a"}, {"id": "a"}]})",
        R"({"rows": [], "orderings": [3]})"})
    EXPECT_THROW(lines_of(text), Error) << text;
}

}  // namespace
}  // namespace tessera
