#include "jinja/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "jinja/chat.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::jinja {
namespace {

using Kind = Value::Kind;

std::string read(const std::string& name) {
  std::ifstream file(TESSERA_TEST_DATA "/chat/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Value& at(const Value& dict, const char* key) {
  const Value* found = dict.dict().find(key);
  if (!found) throw std::runtime_error(key);
  return *found;
}

// Results of jinja2, set up as in transformers; see make_expected.py.
const Value& expected() {
  static const Value kExpected = [] {
    ::setenv("TZ", "UTC", 1);
    return value_of_json(read("expected.json"), "expected.json");
  }();
  return kExpected;
}

// Compares with a case; returns whether jinja2 refused the template.
bool check(const std::string& source, const ValueDict& values, const Value& wanted,
           const std::string& name) {
  const Value* text = wanted.dict().find("text");
  try {
    const std::string got =
        ChatTemplate(source, "t")
            .render(values, static_cast<std::time_t>(at(expected(), "now").whole()));
    if (text)
      EXPECT_EQ(got, text->text()) << name;
    else
      ADD_FAILURE() << name << "\nrefused by jinja2: " << at(wanted, "refused").text() << "\n"
                    << got;
  } catch (const Error& e) {
    EXPECT_FALSE(text) << name << "\n" << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << name;
  }
  return !text;
}

TEST(ChatTemplate, WritesPublishedFormsAsJinjaDoes) {
  size_t written = 0;
  for (const Value& one : at(expected(), "cases").items()) {
    ValueDict values;
    for (const char* missing : {"tools", "documents"}) values.set(missing, nullptr);
    values.set("add_generation_prompt", true);
    values.set("bos_token", "<s>");
    values.set("eos_token", "</s>");
    const std::string name = at(one, "template").text(), chat = at(one, "chat").text();
    for (const auto& [key, value] : at(at(expected(), "chats"), chat.c_str()).dict().items())
      values.set(key, value);
    written += !check(read(name), values, one, name + " of " + chat);
  }
  EXPECT_GE(written, 110u);
}

TEST(ChatTemplate, KnowsTheLanguageAsJinjaDoes) {
  size_t written = 0;
  for (const Value& one : at(expected(), "snippets").items()) {
    const std::string& source = at(one, "template").text();
    written += !check(source, at(expected(), "values").dict(), one, source);
  }
  EXPECT_GE(written, 60u);
}

std::string render(const std::string& text) {
  return ChatTemplate(text, "t").render(at(expected(), "values").dict());
}

TEST(ChatTemplate, RefusesByName) {
  const std::pair<const char*, const char*> odd[] = {
      {"{% block x %}{% endblock %}", "block"},
      {"{% include 'x' %}", "include"},
      {"{{ x | xmlattr }}", "xmlattr"},
      {"{{ x is escaped }}", "escaped"},
      {"{% for m in x %}", "endfor"},
      {"{% if x %}", "endif"},
      {"{{ 'a", "not closed"},
      {"{% endif %}", "endif"},
      {"{{ 1 + }}", "missing"},
      {"{{ cycler(1) }}", "cycler"},
      {"{{ 'a'.format(1) }}", "format"},
      {"{{ f(*x) }}", "star"},
      {"{% for a in b recursive %}", "recursive"},
      {"{% for a in b %}{% macro f() %}{% endmacro %}{% endfor %}", "macro"}};
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
    render("\n\n{{ raise_exception('roles must alternate') }}");
    FAIL() << "rendered";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("line 3"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("roles must alternate"), std::string::npos);
  }
}

TEST(ChatTemplate, SaysWhatItReads) {
  const ChatTemplate reads("{% if tools %}{% for t in tools %}{{ t.x }}{% endfor %}{% endif %}",
                           "t");
  EXPECT_TRUE(reads.reads("tools"));
  EXPECT_FALSE(reads.reads("x"));
  EXPECT_TRUE(reads.reads_part("x"));
  EXPECT_FALSE(reads.reads_part("tools"));
  EXPECT_TRUE(ChatTemplate("{{ m['y'] }}{{ 'z' in m }}", "t").reads_part("y"));
}

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// Names appear in messages, which stay a short line for any template.
TEST(ChatTemplate, ErrorsAreShort) {
  const std::string name = repeated("a", 5000);
  for (const std::string& text :
       {"{{ " + name + " + 1 }}", "{{ x." + name + "() }}", "{{ x['" + name + "'].y }}",
        "{{ " + name + "() }}", "{{ 'a'|" + name + " }}", "{{ 1 is " + name + " }}",
        "{% set " + name + ".a = 1 %}", "{{ raise_exception('" + name + "') }}"}) {
    try {
      render(text);
      FAIL() << text.substr(0, 20);
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 500u) << error.what();
    }
  }
}

// None of these may overflow the stack, fill the memory or go on for ever.
TEST(ChatTemplate, WorkIsBoundedByTheSizeOfTemplateAndChat) {
  const size_t n = 40000;
  const std::string loop = "{% for i in range(99999) %}", end = "{% endfor %}";
  const std::string hostile[] = {
      "{{ 'a'" + repeated("|trim", n) + " }}",
      "{{ 1" + repeated(" or 0", n) + " }}",
      "{{ 1" + repeated(" + 1", n) + " }}",
      "{{ x" + repeated("[0]", n) + " }}",
      "{{ x" + repeated(".a", n) + " }}",
      "{{ x" + repeated("()", n) + " }}",
      "{{ " + repeated("not ", n) + "x }}",
      "{{ " + repeated("-", n) + "1 }}",
      "{{ " + repeated("(", n) + " }}",
      "{{ " + repeated("[", n) + " }}",
      "{{ 2" + repeated(" ** 1", n) + " }}",
      "{{ 1" + repeated(" if x else 1", n) + " }}",
      repeated("{% if x %}", n),
      repeated("{% for a in x %}", n),
      repeated("{% filter trim %}", n),
      loop + loop + loop + "x" + end + end + end,
      loop + repeated("a", 100000) + end,
      "{% set ns = namespace(x='a') %}" + loop + "{% set ns.x = ns.x ~ ns.x %}" + end,
      "{% set ns = namespace(x=[1]) %}" + loop + "{% set ns.x = ns.x + ns.x %}" + end,
      "{% set ns = namespace(x=1) %}" + loop + "{% set ns.x = [ns.x] %}" + end,
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
      "{{ 'a'|map(" + repeated("'map',", n) + "'list') }}",
      "{{ range(1000000000) }}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ 'a'.zfill(1000000000000) }}",
      "{{ 'aaaa'.replace('a', 'b' * 1000000).replace('b', 'c' * 1000000) }}",
      loop + "{{ messages | tojson }}{{ messages == messages }}" + end,
      "{{ range(99999) | unique }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ 3 ** 99999999999 }}"};
  const std::clock_t begin = std::clock();  // processor time, because others may load the machine
  for (const std::string& text : hostile) EXPECT_THROW(render(text), Error) << text.substr(0, 80);
  EXPECT_EQ(render("{{ (-1) ** 9223372036854775807 }}"), "-1");
  EXPECT_LT(std::clock() - begin, 60 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace tessera::jinja
