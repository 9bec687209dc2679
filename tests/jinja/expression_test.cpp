#include "jinja/expression.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

using Op = Expression::Op;

ExpressionPtr read(const std::string& text) {
  const std::string where = "t";
  TokenStream tokens(template_tokens("{{ " + text + " }}", where), where);
  tokens.take();
  return ExpressionReader(tokens).tuple();
}

TEST(TemplateExpression, BindsAsJinjaDoes) {
  EXPECT_EQ(read("1 + 2 ~ 3")->text, "+");
  EXPECT_EQ(read("not a is defined")->op, Op::negation);
  EXPECT_EQ(read("a or b and c")->op, Op::either);
  EXPECT_EQ(read("-1|abs")->op, Op::filter);
  EXPECT_EQ(read("1 < 2 < 3")->keys, (std::vector<std::string>{"<", "<"}));
  EXPECT_EQ(read("a if b else c")->op, Op::choice);
  EXPECT_EQ(read("1, 2")->parts.size(), 2u);
}

TEST(TemplateExpression, DepthCountsChains) {
  EXPECT_EQ(read("a.b.c.d")->depth, 4);
  std::string chain = "1";
  for (int i = 0; i < 150; ++i) chain += " + 1";
  EXPECT_EQ(read(chain)->depth, 151);
  EXPECT_THROW(read(chain + chain), Error);
}

TEST(TemplateExpression, ErrorsAreOneLine) {
  for (const char* text :
       {"(((", "1 2 +", "99999999999999999999", "a.", "a[", "f(a=1, 2)", "a |"}) {
    try {
      read(text);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      continue;
    }
    EXPECT_STREQ(text, "1 2 +");  // reads as far as possible; the caller checks the rest
  }
}

}  // namespace
}  // namespace tessera::jinja
