#include "server/json_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "server/refusal.h"

namespace tessera::server {
namespace {

std::string repeated(const std::string& text, size_t times, const std::string& between = ",") {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += (i ? between : "") + text;
  return all;
}

std::string refused(const std::string& text) {
  try {
    parse_body(text);
    return "";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400);
    return refusal.what();
  }
}

TEST(JsonReader, RefusesBodiesThatAreNone) {
  for (const std::string body :
       {"", "{", "[1]", "1", "{\"a\":1}x", "{\"a\":\"\xff\"}", "{\"a\":NaN}"})
    EXPECT_THROW(parse_body(body), Refusal) << body;
  EXPECT_THROW(parse_body(R"({"a": {"b": 1, "b": 2}})"), Refusal);
  EXPECT_NO_THROW(parse_body(R"({"a": {"b": 1}, "c": {"b": 1}})"));
  EXPECT_THROW(parse_body(std::string(1 << 20, '[')), Refusal);
  std::string deep = "{\"a\":";
  for (int i = 0; i < 40; ++i) deep += "[";
  EXPECT_THROW(parse_body(deep), Refusal);
  for (const auto& [names, taken] : {std::pair{1000, true}, {1001, false}}) {
    std::string wide = "{\"a\":0";
    for (int i = 1; i < names; ++i) wide += ",\"" + std::to_string(i) + "\":0";
    if (taken)
      EXPECT_NO_THROW(parse_body(wide + "}"));
    else
      EXPECT_THROW(parse_body(wide + "}"), Refusal);
  }
}

TEST(JsonReader, CountsValuesWhereverTheyAre) {
  EXPECT_EQ(refused("{\"a\":[" + repeated("0", 19998) + "]}"), "");
  for (const std::string value : {"0", "{}", "[]", "\"\"", "null", "true", "0.5", "{\"b\":[1]}"})
    EXPECT_NE(refused("{\"a\":[" + repeated(value, 20000) + "]}").find("more than 20000 values"),
              std::string::npos)
        << value;
}

TEST(JsonReader, BoundsNamesOfAllObjects) {
  std::string object;
  for (int i = 0; i < 1000; ++i) object += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(refused("{\"a\":[" + repeated("{" + object + "}", 8) + "]}"), "");
  EXPECT_NE(refused("{\"a\":[" + repeated("{" + object + "}", 10) + "]}"), "");
}

TEST(JsonReader, IsNoLongerThanTheTextAllows) {
  // The same number of values, in a single list or in many: a parser that walks lists repeatedly is
  // slower.
  const auto seconds = [](const std::string& text) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      parse_object(text, "it", "", {.values = SIZE_MAX});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      best = std::min(best, took.count());
    }
    return best;
  };
  const std::string few = "{\"a\":[" + repeated("{}", 4000) + "]}";
  const std::string many = "{\"a\":[" + repeated("{}", 64000) + "]}";
  EXPECT_LT(seconds(many), 80 * seconds(few));  // 16 times the text; quadratic were 256 times
}

TEST(JsonReader, AnObjectInAnObjectMayBeAsLong) {
  const JsonLimits wide{.depth = 40, .values = SIZE_MAX, .searches = SIZE_MAX};
  std::string deep = "{\"a\":" + std::string(33, '[') + std::string(33, ']') + "}";
  EXPECT_NO_THROW(parse_object(deep, "it", "", wide));
  EXPECT_THROW(parse_object(deep, "it", ""), Refusal);
}

}  // namespace
}  // namespace tessera::server
