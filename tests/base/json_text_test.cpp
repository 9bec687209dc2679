#include "base/json_text.h"

#include <gtest/gtest.h>

#include "tessera/encodings.h"

namespace tessera::base {
namespace {

TEST(JsonText, AnArrayOfNumbersIsALine) {
  const Json json{{"ids", {1, 2, 3}},
                  {"none", Json::array()},
                  {"object", Json::object()},
                  {"passes", {{{"kind", "full"}, {"experts", {4, 5}}}, {{"kind", "block"}}}},
                  {"usage", {{"tokens", 3}}}};
  EXPECT_EQ(json_text(json), R"({
  "ids": [1, 2, 3],
  "none": [],
  "object": {},
  "passes": [
    {"experts": [4, 5], "kind": "full"},
    {"kind": "block"}
  ],
  "usage": {
    "tokens": 3
  }
})");
}

TEST(JsonText, IsReadBackAsItWas) {
  const Json json{{"a", {{{"b", {{{"c", {1.5, nullptr, "x\n\"y"}}}}}}}},
                  {"long", {{{"text", std::string(500, 'z')}}}},
                  {"deep", {{1, 2}, {3, {4}}}}};
  EXPECT_EQ(Json::parse(json_text(json)), json);
  EXPECT_EQ(Json::parse(json_text(Json(3))), Json(3));
}

TEST(JsonText, WritesUtf8WhateverItGets) { EXPECT_EQ(json_text(Json("\xff")), "\"\xef\xbf\xbd\""); }

TEST(JsonQuoted, IsReadBackAsItWas) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\u20ac \U0001f600";
  EXPECT_EQ(Json::parse(json_quoted(all)), all);
  EXPECT_EQ(json_quoted("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(json_quoted("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace tessera::base
