#pragma once

#include <optional>
#include <stop_token>
#include <string>

namespace tessera::cli {

/// Lines from standard input. On a terminal, lines are typed after a prompt. Pasted text is a
/// single line, of any length and with its line breaks. Backspace, Ctrl-U and Ctrl-W erase, Ctrl-D
/// ends the input.
class TypedLines {
 public:
  explicit TypedLines(std::string prompt);
  /// True if input and output are terminals.
  bool on_terminal() const { return terminal_; }
  /// The next line without its newline; nothing at the end of input. Throws Error(cancelled) after
  /// a stop request, Error(usage) for a line of more than 16 MB.
  std::optional<std::string> next(const std::stop_token& stop);
  /// Same after another prompt, such as a question.
  std::optional<std::string> next(const std::stop_token& stop, const std::string& prompt);

 private:
  enum class Key : uint8_t { none, line, end };
  bool fill(const std::stop_token& stop);
  int byte(const std::stop_token& stop);
  std::optional<std::string> plain(const std::stop_token& stop);
  std::optional<std::string> edited(const std::stop_token& stop);
  Key control(int byte, const std::stop_token& stop);
  void escape(const std::stop_token& stop);
  void insert(const std::string& bytes);
  void erase(size_t bytes);
  void redraw(size_t before);

  std::string prompt_;
  bool terminal_ = false, edits_ = false;
  std::string waiting_;  // input read but not yet used
  std::string line_;
  bool pasted_ = false;  // inside bracketed paste
};

}  // namespace tessera::cli
