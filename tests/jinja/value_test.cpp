#include "jinja/value.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

ValueDict some() {
  ValueDict dict;
  dict.set("b", 1);
  dict.set("a", Value::list({1.0, nullptr, true, "it's"}));
  dict.set("b", 2);  // the key stays in place
  return dict;
}

TEST(TemplateValue, OrdersListsByTheFirstItemsThatDiffer) {
  const auto list = [](std::vector<Value> items) { return Value::list(std::move(items)); };
  EXPECT_TRUE(less(list({nullptr, 1}), list({nullptr, 2})));  // equal values need no order
  EXPECT_TRUE(less(list({list({1, "a"}), 5}), list({list({1, "b"}), 2})));
  EXPECT_TRUE(less(list({1}), list({1, 0})));
  EXPECT_FALSE(less(list({1.0}), list({1})));
  EXPECT_FALSE(less("b", "a"));
  EXPECT_THROW(less(list({nullptr}), list({1})), Error);
  EXPECT_THROW(less(nullptr, nullptr), Error);
  EXPECT_THROW(less("a", 1), Error);
}

TEST(TemplateValue, WritesAsPythonDoes) {
  EXPECT_EQ(shown(some()), "{'b': 2, 'a': [1.0, None, True, \"it's\"]}");
  EXPECT_EQ(to_json(some(), {}), "{\"b\": 2, \"a\": [1.0, null, true, \"it's\"]}");
  JsonStyle style{1, ",", ": ", true, true};
  EXPECT_EQ(to_json(some(), style),
            "{\n \"a\": [\n  1.0,\n  null,\n  true,\n  \"it's\"\n ],\n \"b\": 2\n}");
  const std::pair<double, const char*> numbers[] = {
      {0.1, "0.1"},    {1e16, "1e+16"},    {123456.0, "123456.0"},
      {1e-5, "1e-05"}, {-0.25, "-0.25"},   {1.5e300, "1.5e+300"},
      {0, "0.0"},      {0.0001, "0.0001"}, {std::numeric_limits<double>::infinity(), "inf"}};
  for (const auto& [number, text] : numbers) EXPECT_EQ(shown(number), text);
}

TEST(TemplateValue, IsTrueEqualAndOrderedAsInPython) {
  EXPECT_FALSE(truth(Value()));
  EXPECT_FALSE(truth(""));
  EXPECT_TRUE(truth(Value::list({nullptr})));
  EXPECT_TRUE(equal(1, true));
  EXPECT_TRUE(equal(1, 1.0));
  EXPECT_FALSE(equal("1", 1));
  EXPECT_FALSE(equal(Value::list({1}), Value::tuple({1})));
  EXPECT_TRUE(equal(some(), some()));
  EXPECT_TRUE(less("a", "b"));
  EXPECT_THROW(less("a", 1), Error);
}

TEST(TemplateValue, NestsOnlySoDeep) {
  Value value = 1;
  for (int i = 0; i < 200; ++i) value = Value::list({value});
  EXPECT_THROW(Value::list({value}), Error);
  EXPECT_THROW(Value::list({Value::space({})}), Error);
  Value wide = 1;
  for (int i = 0; i < 100; ++i) wide = Value::list({wide, wide});
  EXPECT_EQ(wide.weight(), std::numeric_limits<size_t>::max());
  Work work{1000};
  EXPECT_THROW(work.spend(wide.weight()), Error);
}

}  // namespace
}  // namespace tessera::jinja
