#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(Json, RefusesAKeyTwice) {
  EXPECT_NE(refusal(R"({"a": 1, "a": 2})").find("'a' stands twice"), std::string::npos);
  EXPECT_EQ(refusal(R"({"a": {"b": 1}, "c": {"b": 2}})"), "was accepted");
}

TEST(Json, RefusesTooDeep) {
  EXPECT_EQ(refusal(std::string(90, '[') + std::string(90, ']')), "was accepted");
  EXPECT_NE(refusal(std::string(100000, '[')).find("deeper"), std::string::npos);
}

TEST(Json, NamesAFileThatIsNotThere) { EXPECT_THROW(read_json("/nowhere/x.json"), Error); }

}  // namespace
}  // namespace tessera::base
