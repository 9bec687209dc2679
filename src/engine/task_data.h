#pragma once

#include <map>
#include <string>
#include <vector>

#include "evaluation/tasks.h"

namespace tessera::engine {

/// Tasks for a language model.
struct TaskData {
  std::vector<evaluation::TaskExample> examples;
  std::map<int64_t, std::vector<size_t>> lengths;  ///< tokens behind the prompt -> examples
  int experts = 0, top_k = 0;                      ///< of the model
};
/// Reads `file`, or tasks.jsonl of the model's folder if it is "". limit: examples, 0: all.
/// max_tokens 0: blocks (of the model if `block` is 0) that hold the answer and its end. Throws
/// Error(model) if it is no language model, Error(usage) for data that does not fit.
TaskData read_task_data(const std::string& model, const std::string& file, int limit,
                        int64_t max_tokens, int block);

}  // namespace tessera::engine
