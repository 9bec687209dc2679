#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/json_memory.h"
#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::base {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "was accepted";
}

TEST(Json, ReadsWhatIsRight) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": null}], "c": "d"})", "x.json")["a"][0], 1);
}

TEST(Json, RefusesDamage) {
  for (const char* text : {"", "{", "{\"a\" 1}", "[1,]", "nul", "{}x", "\"\xff\""})
    EXPECT_NE(refusal(text).find("x.json"), std::string::npos) << text;
}

TEST(Json, SaysWhatIsWrongAndWhere) {
  for (const char* empty : {"", "  ", "\n\t\r\n"})
    EXPECT_EQ(refusal(empty), "x.json: this is no JSON that can be read: nothing stands in it");
  EXPECT_EQ(refusal("{\"a\": [1,"), "x.json: this is no JSON that can be read: it breaks off");
  EXPECT_EQ(refusal("Hello, how are you doing today?"),
            "x.json: this is no JSON that can be read: it is damaged at byte 1, at 'Hello, how are "
            "you d'");
  EXPECT_NE(refusal("[1, x]").find("at byte 5, at 'x]'"), std::string::npos) << refusal("[1, x]");
}

TEST(Json, KeepsToAMemoryBudget) {
  std::string lists = "[0";
  for (int i = 0; i < 200000; ++i) lists += ",[]";
  lists += "]";
  {
    const BindJsonMemory within(1000);  // configs are read within any budget
    EXPECT_EQ(parse_json("[1]", "x.json").size(), 1);
    try {
      parse_json(lists, "x.json");
      ADD_FAILURE() << "was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory);
      EXPECT_STREQ(e.what(), "x.json: its values take more memory than `memory_budget` allows");
    }
  }
  EXPECT_EQ(parse_json(lists, "x.json").size(), 200001);
}

TEST(Json, OnlyAFileIsDownloadedAgain) {
  const std::string path = testing::TempDir() + "/json_test_broken.json";
  std::ofstream(path) << "{";
  try {
    read_json(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("it breaks off; download the file again"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(refusal("{").find("download"), std::string::npos);
}

TEST(Json, RefusesAKeyTwice) {
  EXPECT_NE(refusal(R"({"a": 1, "a": 2})").find("'a' stands twice"), std::string::npos);
  EXPECT_EQ(refusal(R"({"a": {"b": 1}, "c": {"b": 2}})"), "was accepted");
}

TEST(Json, RefusesTooDeep) {
  EXPECT_EQ(refusal(std::string(90, '[') + std::string(90, ']')), "was accepted");
  EXPECT_NE(refusal(std::string(100000, '[')).find("deeper"), std::string::npos);
}

// Two bytes of text, some seventy of memory.
TEST(Json, RefusesValuesThatTakeTooMuchMemory) {
  std::string text = "[0";
  for (int i = 0; i < 6'000'000; ++i) text += ",[]";
  EXPECT_NE(refusal(text + "]").find("MB of memory"), std::string::npos);
}

TEST(Json, BuildsWhatStandsThere) {
  const char* text =
      R"({"a": [1, -2, 2.5, true, null, "x", [], {}], "b": {"c": {"d": [[1], [2, 3]]}, "e": 1}, "": 18446744073709551615})";
  EXPECT_EQ(parse_json(text, "x.json"), Json::parse(text));
  EXPECT_EQ(parse_json("3", "x.json"), 3);
  EXPECT_EQ(parse_json("[[], [[]], 0]", "x.json").dump(), "[[],[[]],0]");
}

TEST(Json, EndsWhenItIsStopped) {
  std::stop_source source;
  source.request_stop();
  const BindStop bind(source.get_token());
  for (const char* text : {"[1, 2]", "{\"a\": 1}", "\"x\""}) try {
      parse_json(text, "x.json");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled);
    }
}

TEST(Json, NamesAFileThatIsNotThere) { EXPECT_THROW(read_json("/nowhere/x.json"), Error); }

}  // namespace
}  // namespace tessera::base
