#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "parallel/setup.h"
#include "tessera/error.h"
#include "test_paths.h"

// The table of docs/plans.md about valid combinations of entries agrees with the planner.
namespace tessera::parallel {
namespace {

const std::vector<std::string> kEntries{"data=2",
                                        "cfg=2",
                                        "pipefusion=2",
                                        "patches=2",
                                        "ring=2",
                                        "ulysses=2",
                                        "tensor=2",
                                        "shard=2",
                                        "distrifusion=2",
                                        "shards=2",
                                        "expert=2",
                                        "moe=fused",
                                        "schedule=interweaved",
                                        "schedule=displaced",
                                        "schedule=adaptive",
                                        "schedule=staggered-batch",
                                        "conditional=low",
                                        "vae=2",
                                        "vae=+2"};

std::string name_of(const std::string& entry) {
  if (entry == "vae=+2") return "vae=+";
  const size_t equals = entry.find('=');
  const std::string value = entry.substr(equals + 1);
  return value == "2" ? entry.substr(0, equals) : value == "low" ? "conditional" : value;
}

nn::Geometry eight_blocks() {
  nn::Geometry geometry;
  geometry.blocks = 8;
  for (int b = 0; b < 8; ++b) {
    geometry.attention.push_back({.block = b, .heads = 8, .kv_heads = 8, .head_dim = 8});
    geometry.experts.push_back({b, 8, 2, 8});
  }
  return geometry;
}

bool runs(const std::string& text) {
  try {
    return problems(parse_plan(text), eight_blocks(),
                    {.samples = 8, .grid = {1, 32, 32}, .branches = 2, .steps = 8, .lines = 64})
        .empty();
  } catch (const Error&) {  // a duplicate entry
    return false;
  }
}

// Adds required entries: ranks with other tokens, and ranks with shared experts.
bool together(const std::string& a, const std::string& b) {
  for (const char* beside : {"", ",data=2", ",data=2,expert=2", ",expert=2"})
    if (runs(a + "," + b + beside)) return true;
  return false;
}

std::string table() {
  std::string text = "| |";
  for (const std::string& entry : kEntries) text += fmt::format(" `{}` |", name_of(entry));
  text += "\n|---|";
  for (size_t i = 0; i < kEntries.size(); ++i) text += "---|";
  for (const std::string& row : kEntries) {
    text += fmt::format("\n| `{}` |", name_of(row));
    for (const std::string& column : kEntries)
      text += row == column ? "   |" : together(row, column) ? " + |" : " - |";
  }
  return text + "\n";
}

TEST(Hybrids, AreInThePlansTableAsThePlannerSays) {
  for (const std::string& entry : kEntries)
    EXPECT_TRUE(together(entry, "warmup=1")) << entry << " alone";
  std::ifstream file(TESSERA_TEST_DATA "/../../docs/plans.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string now = table();
  EXPECT_NE(page.find(now), std::string::npos) << "docs/plans.md must hold this:\n" << now;
}

TEST(Hybrids, GoTogetherWhicheverStandsFirst) {
  for (const std::string& a : kEntries)
    for (const std::string& b : kEntries) EXPECT_EQ(together(a, b), together(b, a)) << a << b;
}

}  // namespace
}  // namespace tessera::parallel
