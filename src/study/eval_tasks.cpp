#include <algorithm>
#include <map>

#include "base/fail.h"
#include "base/json.h"
#include "base/stop.h"
#include "evaluation/shares.h"
#include "evaluation/tasks.h"
#include "nn/moe/selection_rule.h"
#include "study/task_data.h"
#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera {
namespace {

using base::Json;

/// The result of an example.
struct Outcome {
  bool right = false;
  double experts = 0, layers = 0;  // distinct, and over layers of passes under the rule
  double tokens = 0, ruled = 0;    // committed; under the rule
  double passes = 0;
};

/// The results of a rule on all examples.
struct RuleOutcomes {
  std::vector<Outcome> per_example;
  double bytes = 0, seconds = 0;
  double read = 0, reads = 0;  // distinct experts of the batches, over layers of passes
};

Outcome outcome_of(const Completion& c) {
  Outcome o;
  for (const auto& pass : c.passes) {
    o.tokens += double(pass.committed);
    ++o.passes;
    if (!pass.ruled) continue;
    o.ruled += double(pass.committed);
    for (const int64_t distinct : pass.experts) o.experts += double(distinct);
    o.layers += double(pass.experts.size());
  }
  return o;
}

RuleOutcomes run(Model& model, const TaskRequest& request, const study::TaskData& data,
                 const std::string& select, const std::stop_token& stop) {
  RuleOutcomes outcomes;
  for (size_t first = 0; first < data.examples.size(); first = outcomes.per_example.size()) {
    CompleteRequest batch_request = request.complete;
    batch_request.select = select;
    batch_request.as_published = true;  // rules and vanilla run the same kinds of passes
    batch_request.max_tokens = data.max_tokens;
    batch_request.prompts.clear(), batch_request.prompt_ids.clear(), batch_request.chat.clear();
    const size_t end = std::min(first + size_t(request.batch), data.examples.size());
    for (size_t i = first; i < end; ++i) batch_request.prompts.push_back(data.examples[i].prompt);
    CompleteControl control;
    control.stop = stop;
    const CompleteResult result = model.complete(batch_request, control);
    outcomes.bytes += result.bytes_read;
    outcomes.seconds += result.seconds;
    outcomes.read += double(result.experts_read);
    outcomes.reads +=
        double(result.forwards) * double(result.completions.at(0).passes.at(0).experts.size());
    for (const Completion& c : result.completions) {
      const std::string& answer = data.examples[outcomes.per_example.size()].answer;
      outcomes.per_example.push_back(outcome_of(c));
      outcomes.per_example.back().right = request.number ? evaluation::number_match(c.text, answer)
                                                         : evaluation::exact_match(c.text, answer);
    }
  }
  return outcomes;
}

double experts_of(const RuleOutcomes& outcomes, const std::vector<size_t>& members) {
  double experts = 0, layers = 0;
  for (const size_t i : members)
    experts += outcomes.per_example[i].experts, layers += outcomes.per_example[i].layers;
  return layers > 0 ? experts / layers : 0;
}

/// For some examples; bytes, time and batches cover all examples.
TaskQuality quality_of(const std::string& select, const study::TaskData& data,
                       const RuleOutcomes& outcomes, const RuleOutcomes& vanilla,
                       const std::vector<size_t>& members) {
  TaskQuality q;
  q.select = select;
  q.examples = static_cast<int>(members.size());
  std::vector<uint8_t> before, after;
  std::map<std::string, std::pair<double, double>> tasks;
  std::vector<std::string> order;
  double tokens = 0, ruled = 0;
  for (const size_t i : members) {
    const Outcome& o = outcomes.per_example[i];
    before.push_back(vanilla.per_example[i].right);
    after.push_back(o.right);
    tokens += o.tokens;
    ruled += o.ruled;
    q.passes += o.passes / double(members.size());
    const std::string& task = data.examples[i].task;
    if (!tasks.contains(task)) order.push_back(task);
    tasks[task].first += o.right;
    tasks[task].second += 1;
  }
  const auto accuracy = evaluation::wilson(std::count(after.begin(), after.end(), 1), q.examples);
  const auto change = evaluation::mcnemar(before, after);
  q.accuracy = accuracy.value;
  q.accuracy_low = accuracy.low;
  q.accuracy_high = accuracy.high;
  q.gained = change.gained;
  q.lost = change.lost;
  q.p = change.p;
  q.ruled = tokens > 0 ? ruled / tokens : 1;
  q.experts = experts_of(outcomes, members);
  const double base = experts_of(vanilla, members);
  q.experts_share = base > 0 ? q.experts / base : 1;
  q.batch_experts = outcomes.reads > 0 ? outcomes.read / outcomes.reads : 0;
  q.bytes = outcomes.bytes / double(outcomes.per_example.size());
  q.milliseconds = 1000 * outcomes.seconds / double(outcomes.per_example.size());
  for (const auto& task : order) q.tasks.emplace_back(task, tasks[task].first / tasks[task].second);
  return q;
}

/// The examples of each task in turn: half of them to choose a rule, half to judge the choice.
struct Halves {
  std::vector<size_t> all, choose, report;
  explicit Halves(const study::TaskData& data) {
    std::map<std::string, int> counts;
    for (size_t i = 0; i < data.examples.size(); ++i) {
      all.push_back(i);
      (counts[data.examples[i].task]++ % 2 ? report : choose).push_back(i);
    }
  }
};

// "des-vote,weights=A" -> "des-vote:0.2,weights=A".
std::string with_value(const std::string& rule, const std::string& value) {
  const size_t at = std::min(rule.find(','), rule.size());
  return rule.substr(0, at) + ":" + value + rule.substr(at);
}

/// A rule's name alone, as values of a sweep.
std::vector<std::string> sweep_of(const std::string& name, int top_k) {
  std::vector<std::string> values{"0.125", "0.1875", "0.25",  "0.3125",
                                  "0.375", "0.5",    "0.625", "0.75"};
  if (name.starts_with("des-peak"))
    values = {"0.3", "0.2", "0.15", "0.1", "0.07", "0.05", "0.03", "0.02"};
  if (name.starts_with("topk") || name.starts_with("des-seq")) {
    values.clear();
    for (int k = 1; k < top_k; ++k) values.push_back(std::to_string(k));
  }
  std::vector<std::string> rules;
  rules.reserve(values.size());
  for (const auto& value : values) rules.push_back(with_value(name, value));
  return rules;
}

/// "des-vote:0.2,weights=A" -> "des-vote,weights=A".
std::string without_value(const std::string& rule) {
  const size_t at = rule.find(':');
  if (at == std::string::npos) return rule;
  return rule.substr(0, at) + rule.substr(std::min(rule.find(',', at), rule.size()));
}

/// Rules to run; for tuning, rules that differ only in their values form a group.
std::vector<std::vector<std::string>> rules_of(const TaskRequest& request, int top_k) {
  std::vector<std::vector<std::string>> groups;
  std::vector<std::string> names = request.selects, families;
  if (names.empty() && request.tune)
    names = {"topk", "des-seq", "des-vote", "des-max", "des-norm4", "des-peak", "naee"};
  for (const auto& name : names) {
    const std::string family = without_value(name);
    auto at = std::find(families.begin(), families.end(), family);
    if (!request.tune || at == families.end()) {
      at = families.insert(families.end(), family);
      groups.emplace_back();
    }
    auto& group = groups[static_cast<size_t>(at - families.begin())];
    if (request.tune && name == family)
      group = sweep_of(name, top_k);
    else
      group.push_back(name);
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
  const base::BindStop bind(stop);
  const study::TaskData data =
      study::read_task_data(name, request.data, request.limit, request.max_tokens);
  const auto groups = rules_of(request, data.top_k);
  for (const auto& group : groups)
    for (const auto& select : group)  // before the work
      nn::check_selection(nn::parse_selection(select), data.experts, data.top_k);
  const Halves halves(data);
  require(!request.tune || !halves.report.empty(), ErrorCode::usage,
          "{} examples have no two halves, to choose on and to report on; give two of a task",
          data.examples.size());
  Model model = Model::open(name, options, stop);
  const RuleOutcomes vanilla = run(model, request, data, "vanilla", stop);
  const auto quality = [&](const std::string& rule, const RuleOutcomes& outcomes,
                           const auto& members) {
    return quality_of(rule, data, outcomes, vanilla, members);
  };
  line(quality("vanilla", vanilla, halves.all));
  const double least =
      (1 - request.tune.value_or(0)) * quality("", vanilla, halves.choose).accuracy;
  std::vector<TaskQuality> tuned;
  for (const auto& group : groups) {
    std::optional<TaskQuality> best, result;
    for (const auto& select : group) {
      const RuleOutcomes outcomes = run(model, request, data, select, stop);
      const std::string rule = nn::to_string(nn::parse_selection(select));
      line(quality(rule, outcomes, halves.all));
      if (!request.tune) continue;
      const TaskQuality q = quality(rule, outcomes, halves.choose);
      if (q.accuracy < least - 1e-12 || (best && q.experts >= best->experts)) continue;
      best = q;
      result = quality(rule, outcomes, halves.report);
    }
    if (result) tuned.push_back(*result);
  }
  return tuned;
}

std::string to_json(const TaskQuality& q) {
  Json tasks = Json::object();
  for (const auto& [task, accuracy] : q.tasks) tasks[task] = accuracy;
  return Json{{"select", q.select},
              {"examples", q.examples},
              {"accuracy", q.accuracy},
              {"accuracy_95", {q.accuracy_low, q.accuracy_high}},
              {"gained", q.gained},
              {"lost", q.lost},
              {"p", q.p},
              {"ruled", q.ruled},
              {"experts", q.experts},
              {"experts_share", q.experts_share},
              {"batch_experts", q.batch_experts},
              {"passes", q.passes},
              {"bytes", q.bytes},
              {"milliseconds", q.milliseconds},
              {"tasks", tasks}}
      .dump();
}

}  // namespace tessera
