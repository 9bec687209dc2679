#include "base/config_reader.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::base {
namespace {

const Json kConfig = Json::parse(R"({"depth": 3, "scale": 1.5, "on": true, "none": null,
  "kind": "b", "list": [1, 2], "huge": 18446744073709551615, "negative": [-1],
  "betas": [0.5, 0.25], "minus": -0.00085, "nan": "x", "vast": 1e300})");

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "nothing was thrown";
}

// A message contains only the beginning of a value, because the rest may be megabytes.
TEST(ConfigReader, ShowsTheBeginningOfAValue) {
  const auto shown = [](const Json& value) { return ConfigReader::shown(value).str(); };
  for (const char* text : {"3", "-2.5", "true", "null", "\"a\\n\"", "[]", "{}", "[1,[2,{}],\"x\"]",
                           "{\"a\":{\"b\":[1]},\"c\":\"\\u00e9\"}"})
    EXPECT_EQ(shown(Json::parse(text)), text);
  for (const Json& value : {Json(std::string(1000, 'a')), Json(std::vector<int>(1000, 7)),
                            Json(std::vector<std::string>(50, "\xc3\xa9"))})
    EXPECT_EQ(shown(value), value.dump(-1, ' ', true).substr(0, 60));
}

TEST(ConfigReader, ReadsWhatIsThereAndDefaultsWhatIsNot) {
  const ConfigReader read(kConfig, "config.json");
  EXPECT_EQ(read.size("depth"), 3);
  EXPECT_EQ(read.size("none", 7), 7);
  EXPECT_EQ(read.number("scale", 0, 0, 2), 1.5);
  EXPECT_TRUE(read.flag("on", false));
  EXPECT_EQ(read.choice("kind", "a", {"a", "b"}), "b");
  EXPECT_EQ(read.sizes("list", {}), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.positive("scale", 0), 1.5);
  EXPECT_EQ(read.fractions("betas"), (std::vector<double>{0.5, 0.25}));
  EXPECT_FALSE(read.has("none"));
}

TEST(ConfigReader, NamesFileKeyAndValueOfWhatDoesNotFit) {
  const ConfigReader read(kConfig, "config.json");
  EXPECT_EQ(message_of([&] { read.size("scale"); }),
            "config.json: 'scale' is 1.5; expected a whole number from 1 to 1048576");
  EXPECT_NE(message_of([&] { read.size("huge"); }).find("18446744073709551615"), std::string::npos);
  EXPECT_NE(message_of([&] { read.size("missing"); }).find("missing"), std::string::npos);
  EXPECT_NE(message_of([&] {
              read.choice("kind", "a", {"a", "c"});
            }).find("a, c"),
            std::string::npos);
  EXPECT_NE(message_of([&] { read.refuse("on", "this"); }).find("this is not supported"),
            std::string::npos);
  EXPECT_NE(message_of([&] { read.sizes("negative", {}); }).find("holds -1"), std::string::npos);
  EXPECT_NE(message_of([&] { read.all("list", "b"); }).find("holds 1"), std::string::npos);
  EXPECT_NE(message_of([&] { read.flag("depth", false); }).find("true or false"),
            std::string::npos);
}

TEST(ConfigReader, RefusesNumbersThatCannotBe) {
  const ConfigReader read(kConfig, "config.json");
  EXPECT_EQ(message_of([&] { read.fraction("minus", 0.1); }),
            "config.json: 'minus' is -0.00085; expected a number above 0 and below 1");
  EXPECT_NE(message_of([&] { read.fraction("scale", 0.1); }).find("'scale' is 1.5"),
            std::string::npos);
  EXPECT_NE(message_of([&] { read.fractions("negative"); }).find("holds -1"), std::string::npos);
  for (const char* key : {"minus", "vast", "nan", "list"})
    EXPECT_NE(message_of([&] { read.positive(key, 1); }).find("above 0, up to 1e6"),
              std::string::npos);
  EXPECT_EQ(message_of([&] { read.number("vast", 1, 0, 2); }),
            "config.json: 'vast' is 1e+300; expected a number from 0 to 2");
  EXPECT_EQ(read.fraction("none", 0.5), 0.5);
}

}  // namespace
}  // namespace tessera::base
