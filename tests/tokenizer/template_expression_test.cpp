#include "tokenizer/template_expression.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

base::Json value(const std::string& text) {
  return Expression(text, "t").value({{"a", 3}, {"s", "text"}, {"list", {1, 2}}});
}

TEST(TemplateExpression, BindsAsPythonDoes) {
  EXPECT_EQ(value("1 + 2 * 3 - 4"), 3);
  EXPECT_EQ(value("not a == 3 or a > 2 and true"), true);
  EXPECT_EQ(value("-7 % 3"), 2);
  EXPECT_EQ(value("-7 // 3"), -3);
  EXPECT_EQ(value("a not in list"), true);
}

TEST(TemplateExpression, WhatIsUndefinedIsFalseAndPrintsNothing) {
  EXPECT_FALSE(truth(value("nobody.knows")));
  EXPECT_EQ(shown(value("nobody")), "");
  EXPECT_EQ(value("nobody | default('x')"), "x");
  EXPECT_EQ(shown(value("none")), "None");
}

TEST(TemplateExpression, ErrorsAreOneLine) {
  for (const char* text :
       {"a + s", "s[a.b]", "a % 0", "list < s", "(((", "1 2", "99999999999999999999"})
    EXPECT_THROW(value(text), Error) << text;
  EXPECT_THROW(Expression(std::string(5000, '('), "t"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
