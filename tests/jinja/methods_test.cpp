#include "jinja/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

TEST(TemplateMethods, FindWhatStandsBehindADot) {
  ValueDict dict;
  dict.set("items", 7);
  dict.set("x", 8);
  Work work{1000};
  EXPECT_TRUE(attribute(dict, "items").is(Value::Kind::callable));
  EXPECT_EQ(element(dict, "items", work).whole(), 7);
  EXPECT_EQ(attribute(dict, "x").whole(), 8);
  EXPECT_TRUE(attribute(dict, "pop").is(Value::Kind::undefined));
  EXPECT_THROW(attribute(attribute(dict, "y"), "z"), Error);
  EXPECT_THROW(attribute("text", "format"), Error);
}

TEST(TemplateMethods, TakeArgumentsByPlaceAndName) {
  const Arguments given{{Value(1)}, {{"b", Value(2)}}};
  const auto bound = given.bind("f", {"a", "b", "c"}, 2);
  EXPECT_EQ(bound[1]->whole(), 2);
  EXPECT_EQ(bound[2], nullptr);
  EXPECT_THROW(given.bind("f", {"a"}), Error);
  EXPECT_THROW(given.bind("f", {"a", "b", "c"}, 3), Error);
}

TEST(TemplateMethods, SliceByCharacters) {
  Work work{1000};
  const Value text = "a\xc3\xa9z", minus = -1;
  EXPECT_EQ(slice(text, nullptr, nullptr, &minus, work).text(),
            "z\xc3\xa9"
            "a");
  EXPECT_EQ(slice(text, &minus, nullptr, nullptr, work).text(), "z");
}

// Python's slices, over characters of 1 to 4 bytes.
TEST(TemplateMethods, SliceAsPythonDoes) {
  const Value text("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
  const std::vector<std::string> characters = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                               "z"};
  Work work{100000};
  for (int from = -7; from <= 7; ++from)
    for (int to = -7; to <= 7; ++to)
      for (const int step : {-3, -2, -1, 1, 2, 3}) {
        const auto bound = [&](int at) {
          return std::clamp(at < 0 ? at + 5 : at, step < 0 ? -1 : 0, step < 0 ? 4 : 5);
        };
        std::string expected;
        for (int i = bound(from); step > 0 ? i < bound(to) : i > bound(to); i += step)
          expected += characters[size_t(i)];
        const Value a = from, b = to, by = step;
        EXPECT_EQ(slice(text, &a, &b, &by, work).text(), expected)
            << from << ":" << to << ":" << step;
      }
}

}  // namespace
}  // namespace tessera::jinja
