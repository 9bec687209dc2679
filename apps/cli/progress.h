#pragma once

#include <memory>
#include <string>

#include "tessera/request.h"

namespace tessera::cli {

/// "note: ..." on standard error.
void print_note(const std::string& sentence);

/// Shows where a run is, on standard error.
class ProgressView {
 public:
  /// `mode`: "auto" (a bar on a terminal, else plain lines), "plain" or "none".
  explicit ProgressView(const std::string& mode);
  ~ProgressView();
  void show(const Progress& progress);
  /// A sentence on a line of its own, unless the mode is "none".
  void note(const std::string& sentence);
  /// What is printed next begins a line of its own.
  void end_line();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
