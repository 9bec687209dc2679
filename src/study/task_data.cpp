#include "study/task_data.h"

#include "base/fail.h"
#include "base/input_file.h"
#include "base/is_there.h"
#include "runtime/model_state.h"
#include "runtime/resolve_model.h"

namespace tessera::study {
TaskData read_task_data(const std::string& model, const TaskSource& source, int limit,
                        int64_t max_tokens) {
  const std::string folder = runtime::resolve_model(model);
  const load::ModelFolder opened = load::open_folder(folder);
  require(opened.has("model") && opened.kind == load::FolderKind::single, ErrorCode::model,
          "'{}' is no language model; tasks measure language models", model);
  const runtime::Language language(opened.component("model"));
  const models::TokenSpec& spec = language.spec();
  const std::string path = source.name.empty() ? folder + "/tasks.jsonl" : source.name;
  require(!source.name.empty() || base::is_there(path), ErrorCode::usage,
          "'{}' brings no tasks.jsonl: give the examples with `data`", model);
  const std::string text =
      source.text ? *source.text : base::read_file(path, base::kLargestText, ErrorCode::usage);
  TaskData data{evaluation::read_tasks(text, path),
                max_tokens > 0 ? max_tokens : language.max_tokens(), spec.experts, spec.top_k};
  if (limit > 0 && data.examples.size() > static_cast<size_t>(limit))
    data.examples.resize(static_cast<size_t>(limit));
  return data;
}

}  // namespace tessera::study
