#pragma once

#include <string>
#include <vector>

#include "evaluation/tasks.h"
#include "tessera/study.h"

namespace tessera::study {

/// Tasks for a language model.
struct TaskData {
  std::vector<evaluation::TaskExample> examples;
  int64_t max_tokens = 0;      ///< for every prompt, independent of the lengths of answers
  int experts = 0, top_k = 0;  ///< the model's
};
/// Reads `source`, or tasks.jsonl of the model's folder if the source has neither a name nor text.
/// limit: number of examples, 0: all. max_tokens 0: from the model's generation_config.json, else
/// 128. Throws Error(model) if the model is no language model, Error(usage) for invalid data.
TaskData read_task_data(const std::string& model, const TaskSource& source, int limit,
                        int64_t max_tokens);

}  // namespace tessera::study
