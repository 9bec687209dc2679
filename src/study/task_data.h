#pragma once

#include <string>
#include <vector>

#include "evaluation/tasks.h"
#include "tessera/study.h"

namespace tessera::study {

/// Tasks for a language model.
struct TaskData {
  std::vector<evaluation::TaskExample> examples;
  int64_t max_tokens = 0;      ///< behind every prompt: no answer's length shows in it
  int experts = 0, top_k = 0;  ///< of the model
};
/// Reads `source`, or tasks.jsonl of the model's folder if it has neither name nor text. limit:
/// examples, 0: all.
/// max_tokens 0: as the model's generation_config.json says, else 128. Throws Error(model) if it is
/// no language model, Error(usage) for data that does not fit.
TaskData read_task_data(const std::string& model, const TaskSource& source, int limit,
                        int64_t max_tokens);

}  // namespace tessera::study
