#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::evaluation {

/// A prompt with one right answer.
struct TaskExample {
  std::string task, prompt, answer;
};
/// Reads JSON lines with "prompt" (or "question") and "answer" (text or number); "task" is
/// optional. Empty lines are skipped. Throws Error(usage) with `where`, the line and the invalid
/// part.
std::vector<TaskExample> read_tasks(const std::string& text, const std::string& where);

/// True if equal without white space at both ends.
bool exact_match(std::string_view output, std::string_view answer);
/// True if the last numbers of both are equal ("#### 1,200" and "so it is $1200.00."). Without a
/// number in either: false.
bool number_match(std::string_view output, std::string_view answer);

}  // namespace tessera::evaluation
