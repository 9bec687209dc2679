#include <algorithm>
#include <array>
#include <map>

#include "base/fail.h"
#include "engine/model_state.h"
#include "engine/task_data.h"
#include "evaluation/paired.h"
#include "evaluation/tasks.h"
#include "nn/expert_selection.h"
#include "tessera/tasks.h"

namespace tessera {
namespace {

using base::Json;

bool fills_the_cache(const std::string& kind) {
  return kind == "refresh" || kind == "prefill" || kind == "finalise";
}

/// What a rule made, example by example.
struct Made {
  std::vector<double> right;
  double experts = 0, layers = 0;  // distinct, and over how many layers of passes
  double passes = 0, bytes = 0, seconds = 0;
};

Made run(Model& model, const TaskRequest& request, const engine::TaskData& data,
         const std::string& select, const std::stop_token& stop) {
  Made made;
  made.right.resize(data.examples.size());
  for (const auto& [tokens, members] : data.lengths)
    for (size_t first = 0; first < members.size(); first += size_t(request.batch)) {
      CompleteRequest one = request.complete;
      one.select = select;
      one.max_tokens = tokens;
      one.prompts.clear();
      const size_t end = std::min(first + size_t(request.batch), members.size());
      for (size_t i = first; i < end; ++i) one.prompts.push_back(data.examples[members[i]].prompt);
      CompleteControl control;
      control.stop = stop;
      const CompleteResult result = model.complete(one, control);
      made.bytes += result.bytes_read;
      made.seconds += result.seconds;
      for (size_t i = first; i < end; ++i) {
        const Completion& c = result.completions[i - first];
        const std::string& answer = data.examples[members[i]].answer;
        made.right[members[i]] = request.number ? evaluation::number_match(c.text, answer)
                                                : evaluation::exact_match(c.text, answer);
        made.passes += double(c.passes.size());
        for (const auto& pass : c.passes) {
          if (fills_the_cache(pass.kind) && !one.select_prefill) continue;
          for (const int64_t distinct : pass.experts) made.experts += double(distinct);
          made.layers += double(pass.experts.size());
        }
      }
    }
  return made;
}

TaskQuality quality_of(const std::string& select, const engine::TaskData& data, const Made& made,
                       const Made& vanilla) {
  TaskQuality q;
  q.select = select;
  q.examples = static_cast<int>(data.examples.size());
  const auto count = double(data.examples.size());
  const auto accuracy = evaluation::interval(made.right);
  std::vector<double> changes;
  std::map<std::string, std::pair<double, double>> tasks;
  std::vector<std::string> order;
  for (size_t i = 0; i < data.examples.size(); ++i) {
    changes.push_back(made.right[i] - vanilla.right[i]);
    const std::string& task = data.examples[i].task;
    if (!tasks.contains(task)) order.push_back(task);
    tasks[task].first += made.right[i];
    tasks[task].second += 1;
  }
  const auto change = evaluation::interval(changes);
  q.accuracy = accuracy.mean;
  q.accuracy_half = accuracy.half;
  q.change = change.mean;
  q.change_half = change.half;
  q.experts = made.layers > 0 ? made.experts / made.layers : 0;
  const double base = vanilla.layers > 0 ? vanilla.experts / vanilla.layers : 0;
  q.experts_share = base > 0 ? q.experts / base : 1;
  q.passes = made.passes / count;
  q.bytes = made.bytes / count;
  q.milliseconds = 1000 * made.seconds / count;
  for (const auto& task : order) q.tasks.emplace_back(task, tasks[task].first / tasks[task].second);
  return q;
}

// "des-vote,weights=A" -> "des-vote:0.2,weights=A".
std::string with_value(const std::string& rule, const std::string& value) {
  const size_t at = std::min(rule.find(','), rule.size());
  return rule.substr(0, at) + ":" + value + rule.substr(at);
}

/// Rules to run, grouped by what is tuned; without tuning each is its own group.
std::vector<std::vector<std::string>> rules_of(const TaskRequest& request, int top_k) {
  std::vector<std::vector<std::string>> groups;
  if (!request.tune) {
    for (const auto& select : request.selects) groups.push_back({select});
    return groups;
  }
  std::vector<std::string> names = request.selects;
  if (names.empty())
    names = {"topk", "des-seq", "des-vote", "des-max", "des-norm4", "des-peak", "naee"};
  for (const auto& name : names) {
    require(name.find(':') == std::string::npos, ErrorCode::usage,
            "'{}' has a value already; tuning finds it: give the name of the rule alone", name);
    groups.emplace_back();
    if (name.starts_with("topk") || name.starts_with("des-seq")) {
      for (int k = 1; k < top_k; ++k) groups.back().push_back(with_value(name, std::to_string(k)));
      continue;
    }
    if (name.starts_with("des-peak")) {
      for (const char* weight : {"0.3", "0.2", "0.15", "0.1", "0.07", "0.05", "0.03", "0.02"})
        groups.back().push_back(with_value(name, weight));
      continue;
    }
    for (const char* beta : {"0.125", "0.1875", "0.25", "0.3125", "0.375", "0.5", "0.625", "0.75"})
      groups.back().push_back(with_value(name, beta));
  }
  return groups;
}

}  // namespace

std::vector<TaskQuality> evaluate_tasks(const std::string& name, const RunOptions& options,
                                        const TaskRequest& request,
                                        const std::function<void(const TaskQuality&)>& line,
                                        const std::stop_token& stop) {
  require(request.batch >= 1 && request.limit >= 0 && request.max_tokens >= 0, ErrorCode::usage,
          "batches of {}, {} examples, {} tokens: expected 1 or more, or 0 for all", request.batch,
          request.limit, request.max_tokens);
  const engine::TaskData data = engine::read_task_data(name, request.data, request.limit,
                                                       request.max_tokens, request.complete.block);
  const auto groups = rules_of(request, data.top_k);
  for (const auto& group : groups)
    for (const auto& select : group)  // before the work
      nn::check_selection(nn::parse_selection(select), data.experts, data.top_k);
  Model model = Model::open(name, options);
  const Made vanilla = run(model, request, data, "vanilla", stop);
  const TaskQuality base = quality_of("vanilla", data, vanilla, vanilla);
  line(base);
  std::vector<TaskQuality> tuned;
  for (const auto& group : groups) {
    std::optional<TaskQuality> best;
    for (const auto& select : group) {
      const Made made = run(model, request, data, select, stop);
      const TaskQuality q =
          quality_of(nn::to_string(nn::parse_selection(select)), data, made, vanilla);
      line(q);
      const bool good = request.tune && q.accuracy >= base.accuracy - *request.tune - 1e-12;
      if (good && (!best || q.experts < best->experts)) best = q;
    }
    if (best) tuned.push_back(*best);
  }
  return tuned;
}

std::string to_json(const TaskQuality& q) {
  Json tasks = Json::object();
  for (const auto& [task, accuracy] : q.tasks) tasks[task] = accuracy;
  return Json{{"select", q.select},
              {"examples", q.examples},
              {"accuracy", q.accuracy},
              {"accuracy_95", q.accuracy_half},
              {"change", q.change},
              {"change_95", q.change_half},
              {"experts", q.experts},
              {"experts_share", q.experts_share},
              {"passes", q.passes},
              {"bytes", q.bytes},
              {"milliseconds", q.milliseconds},
              {"tasks", tasks}}
      .dump();
}

}  // namespace tessera
