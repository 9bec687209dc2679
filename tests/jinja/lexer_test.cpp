#include "jinja/lexer.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

std::string joined(const std::string& source) {
  std::string all;
  for (const TemplateToken& token : template_tokens(source, "t")) {
    if (token.kind == TemplateToken::Kind::end) break;
    all += (all.empty() ? "" : "|") + token.text;
  }
  return all;
}

TEST(TemplateLexer, CutsWhiteSpaceAsTransformersDoes) {
  EXPECT_EQ(joined("a\n  {% if %}\nb\r\n"), "a\n||if||b");
  EXPECT_EQ(joined("a  {{- b -}}  c{# no\n #}\nd\n"), "a||b||c|d");
  EXPECT_EQ(joined("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(joined("{ {x"), "{ {x");
}

TEST(TemplateLexer, ReadsTextsNumbersAndBrackets) {
  EXPECT_EQ(joined("{{ {'}}': 1_0.5e3} }}"), "{|}}|:|10.5e3|}|");
  EXPECT_EQ(template_tokens("\n{{ '\\u00e9\\n\\'' }}", "t")[2].text, "\xc3\xa9\n'");
  EXPECT_EQ(template_tokens("\n{{ 'x' }}", "t")[2].line, 2);
}

TEST(TemplateLexer, RefusesWhatHasNoEnd) {
  for (const char* text :
       {"{{", "{{ 'a", "{{ a ]", "{# a", "{% raw %}", "{{ ( }}", "{{ \xc3\xa9 }}", "{{ 'a\\",
        "{{ '\\ud800' }}", "{{ '\\N{DOT}' }}", "{{ 12ab }}"})
    EXPECT_THROW(template_tokens(text, "t"), Error) << text;
}

}  // namespace
}  // namespace tessera::jinja
