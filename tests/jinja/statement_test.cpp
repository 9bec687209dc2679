#include "jinja/statement.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

TEST(TemplateStatement, ReadsBlocksWithTheirBodies) {
  const Statements all = template_statements(
      "a{% for k, v in x if v %}{{ k }}{% else %}-{% endfor %}{% set n.m = 1 %}", "t");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1]->kind, Statement::Kind::loop);
  EXPECT_EQ(all[1]->names, (std::vector<std::string>{"k", "v"}));
  EXPECT_NE(all[1]->expressions[1], nullptr);
  EXPECT_EQ(all[1]->bodies[1].size(), 1u);
  EXPECT_EQ(all[2]->text, "m");
}

TEST(TemplateStatement, NamesTheLineOfWhatIsMalformed) {
  for (const char* text :
       {"\n{% for %}", "\n{% if x %}{% endfor %}", "\n{% set = 1 %}", "\n{% break %}", "\n{{ }}",
        "\n{% macro f(a=1, b) %}{% endmacro %}", "\n{% %}", "\n{% endmacro %}", "\n{% 'a\n' %}",
        "\n{% with a %}{% endwith %}"}) {
    try {
      template_statements(text, "t");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      EXPECT_NE(std::string(e.what()).find("t: line 2"), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace tessera::jinja
