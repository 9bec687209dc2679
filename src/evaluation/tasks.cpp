#include "evaluation/tasks.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/fail.h"
#include "base/json.h"

namespace tessera::evaluation {
namespace {

using base::Json;

std::string text_at(const Json& line, const char* key, const std::string& where, int number) {
  const auto it = line.find(key);
  require(it != line.end() && (it->is_string() || it->is_number()), ErrorCode::usage,
          "{}: line {} has no text as '{}'", where, number, key);
  return it->is_string() ? it->get<std::string>() : it->dump();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  const char* white = " \t\r\n";
  const size_t from = text.find_first_not_of(white);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(white) - from + 1);
}

// The last number: digits, commas between them, a point, a sign.
std::optional<double> last_number(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  if (end == 0) return std::nullopt;
  size_t from = end;
  const auto inner = [&](size_t i) {
    return is_digit(text[i]) ||
           ((text[i] == ',' || text[i] == '.') && i > 0 && is_digit(text[i - 1]));
  };
  while (from > 0 && inner(from - 1)) --from;
  std::string digits;
  if (from > 0 && text[from - 1] == '-') digits = "-";
  for (size_t i = from; i < end; ++i)
    if (text[i] != ',') digits += text[i];
  return std::strtod(digits.c_str(), nullptr);
}

}  // namespace

std::vector<TaskExample> read_tasks(const std::string& text, const std::string& where) {
  std::vector<TaskExample> examples;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string row = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (trimmed(row).empty()) continue;
    Json line;
    try {
      line = base::parse_json(row, where);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::cancelled) throw;
      fail(ErrorCode::usage, "{}: line {} is not JSON", where, number);
    }
    require(line.is_object(), ErrorCode::usage, "{}: line {} is no JSON object", where, number);
    const char* prompt =
        line.contains("question") && !line.contains("prompt") ? "question" : "prompt";
    examples.push_back({line.contains("task") ? text_at(line, "task", where, number) : "all",
                        text_at(line, prompt, where, number),
                        text_at(line, "answer", where, number)});
    require(!examples.back().prompt.empty(), ErrorCode::usage, "{}: line {}: '{}' is empty", where,
            number, prompt);
  }
  require(!examples.empty(), ErrorCode::usage, "{}: there is no example in it", where);
  return examples;
}

bool exact_match(std::string_view output, std::string_view answer) {
  return trimmed(output) == trimmed(answer);
}

bool number_match(std::string_view output, std::string_view answer) {
  const auto a = last_number(output), b = last_number(answer);
  return a && b && std::abs(*a - *b) <= 1e-9 * std::abs(*b);
}

}  // namespace tessera::evaluation
