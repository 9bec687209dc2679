#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

const Json kChat{{"messages",
                  {{{"role", "system"}, {"content", " Be brief. "}},
                   {{"role", "user"}, {"content", "Hi"}},
                   {{"role", "assistant"}, {"content", "Yes"}}}},
                 {"add_generation_prompt", true},
                 {"bos_token", "<s>"}};

std::string render(const std::string& text) { return ChatTemplate(text, "t").render(kChat); }

TEST(ChatTemplate, WritesTheTurnsOfAConversation) {
  EXPECT_EQ(
      render("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}U:{{ m.content }}"
             "{% elif m.role == 'system' %}S:{{ m['content'] | trim }}{% else %}A:{{ m.content }}"
             "{% endif %};{% endfor %}{% if add_generation_prompt %}A:{% endif %}"),
      "<s>S:Be brief.;U:Hi;A:Yes;A:");
}

TEST(ChatTemplate, KnowsLoopsNamespacesAndSlices) {
  EXPECT_EQ(
      render(
          "{% set ns = namespace(n=0) %}{% for m in messages[1:] %}{% set ns.n = ns.n + 1 %}"
          "{% if loop.last %}{{ loop.index }}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.n }}"),
      "212");
  EXPECT_EQ(render("{% set x = messages[-1] %}{{ x.content.upper() ~ 1 }}"), "YES1");
  EXPECT_EQ(render("{% for m in messages[::-1] %}{{ m.role[:1] }}{% endfor %}"), "aus");
}

TEST(ChatTemplate, TestsAndChoosesInExpressions) {
  EXPECT_EQ(render("{{ 'a' if tools is defined else 'b' }}{{ 1 if not tools and 'us' in "
                   "messages[1].role }}"),
            "b1");
  EXPECT_EQ(render("{{ messages | length }}{{ (2 + 3) * 2 % 7 }}{{ [1, 'x'] | join('-') }}"),
            "331-x");
  EXPECT_EQ(render("{{ {'a': 1} | tojson }}{{ ' x '.strip() }}{{ 'a,b'.split(',')[1] }}"),
            "{\"a\":1}xb");
}

TEST(ChatTemplate, TrimsBlocksAsTransformersDoes) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {%- endif %}\nc"), "a\nbc");
  EXPECT_EQ(render("a  {{- 'b' -}}  c{# no\n #}d"), "abcd");
}

TEST(ChatTemplate, RefusesByName) {
  const std::pair<const char*, const char*> odd[] = {{"{% macro f() %}{% endmacro %}", "macro"},
                                                     {"{{ x | selectattr('a') }}", "selectattr"},
                                                     {"{{ x is divisibleby 3 }}", "divisibleby"},
                                                     {"{% for m in x %}", "endfor"},
                                                     {"{% if x %}", "endif"},
                                                     {"{{ 'a", "}}"},
                                                     {"{% endif %}", "endif"},
                                                     {"{{ 1 + }}", "missing"},
                                                     {"{{ strftime_now('x') }}", "strftime_now"},
                                                     {"{{ 'a'.format(1) }}", "format"}};
  for (const auto& [text, named] : odd) {
    try {
      render(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model) << text;
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  }
}

TEST(ChatTemplate, HandsOnWhatTheTemplateRefuses) {
  try {
    render("{{ raise_exception('roles must alternate') }}");
    FAIL() << "rendered";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("roles must alternate"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::tokenizer
