#include "jinja/filters.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

TEST(TemplateFilters, ChangeAndTestValues) {
  Work work{100000};
  EXPECT_EQ(filtered("upper", "\xc3\xa9", {}, work).text(), "\xc3\x89");
  EXPECT_EQ(filtered("length", Value::list({1, 2}), {}, work).whole(), 2);
  EXPECT_EQ(filtered("default", Value(), {{"x"}, {}}, work).text(), "x");
  EXPECT_TRUE(tested("divisibleby", 6, {{3}, {}}, work));
  EXPECT_THROW(tested("divisibleby", 6, {{0}, {}}, work), Error);
  EXPECT_TRUE(is_filter("selectattr"));
  EXPECT_FALSE(is_filter("xmlattr"));
  EXPECT_TRUE(is_test("defined"));
  Work little{3};
  EXPECT_THROW(filtered("tojson", Value::list({1, 2, 3, 4}), {}, little), Error);
}

}  // namespace
}  // namespace tessera::jinja
