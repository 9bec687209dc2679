#pragma once

#include <memory>
#include <string>

#include "tessera/request.h"

namespace tessera::cli {

/// Prints "note: ..." on standard error.
void print_note(const std::string& sentence);

/// Shows the progress of a run on standard error.
class ProgressView {
 public:
  /// `mode`: "auto" (a bar on a terminal, else plain lines), "plain" or "none".
  explicit ProgressView(const std::string& mode);
  ~ProgressView();
  void show(const Progress& progress);
  /// Prints a sentence on a separate line, unless the mode is "none".
  void note(const std::string& sentence);
  /// The next output begins on a new line.
  void end_line();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
