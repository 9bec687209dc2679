#include <memory>

#include "jinja/chat.h"
#include "jinja/chat_template.h"
#include "readers/inputs.h"

// Chat templates over a long text, and long templates.
namespace tessera::readers {
namespace {

using namespace jinja;

// `text` is {{ text }} in the template.
Reader over_text(const std::string& source, const std::string& part) {
  const auto chat = std::make_shared<ChatTemplate>(source, "test");
  return {source + " of " + part, [=](size_t bytes) {
            ValueDict values;
            values.set("text", repeated(part, bytes));
            values.set("half", repeated(part, bytes / 2) + "b");
            return [=] { chat->render(values, 0); };
          }};
}

Reader source_of(const std::string& name, const std::string& first, const std::string& part,
                 const std::string& last) {
  return {name,
          [=](size_t bytes) {
            const std::string source = first + repeated(part, bytes - 100) + last;
            return [=] { ChatTemplate(source, "test").render({}, 0); };
          },
          size_t{1} << 20};
}

void add_programs(std::vector<Reader>& all) {
  for (const char* source :
       {"{% for a in text %}{% for b in text %}x{% endfor %}{% endfor %}",
        "{% macro m(a=1, b=2) %}{{ m(a) }}{% endmacro %}{{ m() }}",
        "{% set n = namespace(t='') %}{% for a in text %}{% set n.t = n.t ~ text %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{{ text|length }}{% endfor %}",
        "{% for a in range(100000) %}{{ [text, a]|unique|list|length }}{% endfor %}"})
    all.push_back(over_text(source, "a"));
  std::string parameters = "a0";
  for (int i = 1; i < 20000; ++i) parameters += ",a" + std::to_string(i);
  all.push_back(
      over_text("{% macro m(" + parameters +
                    ") %}{% endmacro %}{% for a in range(1000) %}{{ m(a19999=1) }}{% endfor %}",
                "a"));
  all.back().name = "a macro of many parameters";
}

void add_sources(std::vector<Reader>& all) {
  all.push_back(source_of("a chain of comparisons", "{{ 1", "<1", " }}"));
  all.push_back(source_of("a long list", "{{ [1", ",1", "]|length }}"));
  all.push_back(source_of("a long concatenation", "{{ 1", "~1", " is none }}"));
  all.push_back(source_of("many branches", "{% if 0 %}", "{% elif 0 %}", "{% endif %}"));
  all.push_back(source_of("many tags", "", "{{ a }}", ""));
  all.push_back(source_of("many comments", "", "{# a #}\n ", ""));
  all.push_back(source_of("raw that ends late", "{% raw %}", "{% endra", "{% endraw %}"));
  all.push_back(source_of("brackets", "{{ ", "(", " }}"));
  all.push_back(source_of("braces", "", "{", ""));
}

}  // namespace

std::vector<Reader> template_readers() {
  std::vector<Reader> all;
  for (const char* work : {"half in text",
                           "text.find(half)",
                           "text.rfind(half)",
                           "text.count(half)",
                           "text.split(half)",
                           "text.rsplit(half)",
                           "text.partition(half)",
                           "text.rpartition(half)",
                           "text.replace(half, 'x')",
                           "text.strip('b' ~ half)",
                           "text.lstrip(half)",
                           "text.rstrip(half)",
                           "text.startswith((half, half, half))",
                           "text.removeprefix(half)",
                           "text.join([half, half])",
                           "text|upper",
                           "text|title",
                           "text|capitalize",
                           "text|trim",
                           "text|wordcount",
                           "text|length",
                           "text|reverse",
                           "text|list|unique|list",
                           "text|list|max",
                           "text|list|sort|length",
                           "text is lower",
                           "text|tojson",
                           "[[[text]]]|string|length",
                           "text|indent",
                           "text|replace('a', 'aa')",
                           "text[0]",
                           "text[::-1]",
                           "text.zfill(10)",
                           "text.splitlines()|length",
                           "([text] + ['a'] * (text|length // 100))|max|length",
                           "(['a'] * (text|length // 100))|map(attribute=text)|list|length",
                           "(['a'] * (text|length // 100))|select('in', text)|list|length",
                           "(['a'] * (text|length // 100))|map('replace', text, text)|list|length",
                           "([text] * 400)|max|length",
                           "([text] * 400)|min(attribute='0')|length",
                           "([text] * 400)|unique|list|length",
                           "([text] * 20)|sort|length",
                           "range(1000)|map(attribute=half)|list|length",
                           "range(1000)|map('tojson', separators=(half, half))|list|length",
                           "([text] * 400)|select('in', half)|list|length",
                           "range(1000)|map('default', text)|map('upper')|list|length"})
    all.push_back(over_text("{{ (" + std::string(work) + ") is none }}", "a"));
  for (const char* work : {"text.splitlines()", "text.split()", "text|title", "text|indent(100)"})
    for (const char* part : {"\n", " ", "\xc3\xa9", "a\n", "\xce\xa3"})
      all.push_back(over_text("{{ (" + std::string(work) + ") is none }}", part));
  add_programs(all);
  add_sources(all);
  return all;
}

}  // namespace tessera::readers
