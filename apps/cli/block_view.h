#pragma once

#include <map>
#include <string>

#include "tessera/complete.h"

namespace tessera::cli {

/// Shows on standard error how the blocks of answers fill in, a line for each block. On a terminal,
/// the line of a single answer changes with every pass; otherwise a line is written after the block
/// is complete.
class BlockView {
 public:
  explicit BlockView(size_t prompts);
  void show(const CompleteProgress& progress);

 private:
  struct Line {
    int64_t from = -1;
    int passes = 0;
    std::string text;
  };
  void write(int prompt, const Line& line) const;

  bool many_, live_;
  int width_;
  std::map<int, Line> open_;  // key: prompt
};

}  // namespace tessera::cli
