#include "jinja/chat_template.h"

#include <algorithm>
#include <functional>

#include "base/fail.h"
#include "jinja/render.h"
#include "jinja/statement.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::repaired;

namespace {

constexpr size_t kLongestTemplate = size_t{1} << 20;
// Maximum steps: ten take up to a microsecond.
constexpr size_t kSteps = 5'000'000, kStepsAByte = 10, kMostSteps = 200'000'000;

using Predicate = std::function<bool(const Expression&)>;

bool holds(const Expression& e, const Predicate& predicate) {
  if (predicate(e)) return true;
  return std::any_of(e.parts.begin(), e.parts.end(),
                     [&](const ExpressionPtr& part) { return part && holds(*part, predicate); });
}

bool holds(const Statements& statements, const Predicate& predicate) {
  return std::any_of(statements.begin(), statements.end(), [&](const auto& s) {
    return std::any_of(s->expressions.begin(), s->expressions.end(),
                       [&](const ExpressionPtr& e) { return e && holds(*e, predicate); }) ||
           std::any_of(s->bodies.begin(), s->bodies.end(),
                       [&](const Statements& body) { return holds(body, predicate); });
  });
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& text, const std::string& where)
    : where_(where), bytes_(text.size()) {
  require(text.size() <= kLongestTemplate, ErrorCode::model,
          "{}: the chat template has {} bytes; expected at most {}", where, text.size(),
          kLongestTemplate);
  require(repaired(text) == text, ErrorCode::model, "{}: the chat template is no UTF-8", where);
  statements_ = template_statements(text, where_);
}

std::string ChatTemplate::render(const ValueDict& values, std::time_t now) const {
  size_t weight = bytes_ / 16;
  for (const auto& item : values.items()) weight += item.second.weight();
  int line = 1;
  const Work work{std::min(kMostSteps, kSteps + 16 * kStepsAByte * std::min(weight, kMostSteps))};
  try {
    return rendered(statements_, values, now, work, line);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: line {}: {}", where_, line, e.what()));
  }
}

bool ChatTemplate::reads(const std::string& name) const {
  return holds(statements_,
               [&](const Expression& e) { return e.op == Expression::Op::name && e.text == name; });
}

bool ChatTemplate::reads_part(const std::string& name) const {
  return holds(statements_, [&](const Expression& e) {
    if (e.op == Expression::Op::attribute) return e.text == name;
    return e.op == Expression::Op::literal && e.value.is(Value::Kind::text) &&
           e.value.text() == name;
  });
}

}  // namespace tessera::jinja
