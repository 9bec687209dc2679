#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "completion/recorder.h"
#include "evaluation/fit.h"
#include "nn/moe/expert_selection.h"
#include "nn/positions.h"
#include "pipeline/complete.h"
#include "runtime/open_model.h"
#include "study/task_data.h"
#include "tensor/device_pool.h"
#include "tessera/study.h"

namespace tessera {
namespace {

using base::Json;
using nn::Tensor;
using Core = std::vector<uint8_t>;

constexpr int64_t kCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

/// Sums over the sequences and passes of a layer.
struct Layer {
  std::vector<int64_t> hits;           // by expert
  std::map<int64_t, double> distinct;  // by count of tokens
  std::map<int64_t, int64_t> samples;
  std::map<int, std::vector<double>> before;  // hits of the last pass, by sequence
  double likeness = 0;
  int64_t pairs = 0;
};
/// Calls of the experts: assignments, distinct experts, seconds.
struct Calls {
  std::vector<double> assignments, distinct, seconds;
};
struct Sums {
  double size = 0;  // arrays: the rule's coreset, a fixed coreset, a random coreset
  double recall[3] = {}, residual[3] = {}, hits[3] = {};
  int64_t samples = 0;
};

Core busiest(const std::vector<int64_t>& hits, size_t count) {
  std::vector<size_t> order(hits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return hits[a] > hits[b]; });
  Core core(hits.size());
  for (size_t i = 0; i < count; ++i) core[order[i]] = 1;
  return core;
}

Core drawn(size_t experts, size_t count, std::mt19937& random) {
  std::vector<size_t> order(experts);
  std::iota(order.begin(), order.end(), size_t{0});
  Core core(experts);
  for (size_t i = 0; i < count; ++i) {
    std::swap(order[i], order[i + random() % (experts - i)]);
    core[order[i]] = 1;
  }
  return core;
}

double recall_of(const ops::Routing& vanilla, const Core& core) {
  int64_t total = 0, hits = 0;
  for (const int64_t e : vanilla.ids.to_ints())
    if (e >= 0) ++total, hits += core[static_cast<size_t>(e)];
  return total ? double(hits) / double(total) : 1;
}

std::vector<double> hits_of(const ops::Routing& routing, size_t experts) {
  std::vector<double> hits(experts);
  for (const int64_t e : routing.ids.to_ints())
    if (e >= 0) ++hits[static_cast<size_t>(e)];
  return hits;
}

/// Tokens of a call with the choice of the model's router.
struct Rows {
  Tensor logits, tokens;
  ops::Routing routing;

  Rows of(const std::vector<nn::Range>& rows) const {
    const auto select = [&](const Tensor& x) { return nn::take_ranges(x, rows); };
    return {select(logits), select(tokens), {select(routing.ids), select(routing.weights)}};
  }
};

// Rows of a segment with first row `first`, for runs of its ids.
std::vector<nn::Range> rows_of(const nn::Segment& s, int64_t first,
                               const std::vector<nn::Range>& runs) {
  std::vector<nn::Range> rows;
  for (const nn::Range& run : runs) {
    const int64_t begin = std::max(run.begin, s.ids.begin), end = std::min(run.end, s.ids.end);
    if (begin < end) rows.push_back({first + begin - s.ids.begin, first + end - s.ids.begin});
  }
  return rows;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    whole += std::pow(double(b[i]), 2);
  }
  return whole > 0 ? std::sqrt(difference / whole) : 0;
}

/// Compares other choices of experts with the router's, on the tokens of a running model.
class Observer {
 public:
  explicit Observer(std::vector<nn::SelectionRule> rules) : rules_(std::move(rules)) {}

  void see(const nn::MoeWork& work) {
    const Rows work_rows{work.gate.router().logits(work.tokens), work.tokens, work.routing};
    int64_t at = 0;
    for (const nn::Segment& s : work.call.view.body) {
      const std::vector<nn::Range> rows{{at, at + s.ids.size()}};
      if (const auto it = sequences.find(s.sequence); it != sequences.end()) {
        if (weigh)
          compare(work, work_rows.of(rows), work_rows.of(rows_of(s, at, it->second)));
        else
          count(work.call.site, s.sequence, work_rows.of(rows));
      }
      at = rows[0].end;
    }
  }

  /// Observed sequences, and the undecided runs of their tokens.
  std::map<int, std::vector<nn::Range>> sequences;
  bool weigh = false;  ///< true: compare rules; false: only count
  std::map<int, Layer> layers;
  std::map<std::pair<size_t, int>, Sums> sums;  ///< by rule and layer
  Calls calls;

  /// Call before another sequence.
  void forget() {
    for (auto& [site, layer] : layers) layer.before.clear();
  }

 private:
  void count(int site, int sequence, const Rows& rows) {
    Layer& layer = layers[site];
    const auto experts = static_cast<size_t>(rows.logits.size(1));
    const Tensor ids = rows.routing.ids.to(tensor::Device::cpu);
    layer.hits.resize(experts);
    std::set<int32_t> distinct;
    std::vector<double> hits(experts);
    for (int64_t t = 0; t < ids.size(0); ++t) {
      for (int64_t j = 0; j < ids.size(1); ++j)
        if (const int32_t e = ids.row<int32_t>(t)[j]; e >= 0) {
          ++layer.hits[static_cast<size_t>(e)];
          ++hits[static_cast<size_t>(e)];
          distinct.insert(e);
        }
      if (std::find(std::begin(kCounts), std::end(kCounts), t + 1) == std::end(kCounts)) continue;
      layer.distinct[t + 1] += double(distinct.size());
      ++layer.samples[t + 1];
    }
    if (const auto last = layer.before.find(sequence); last != layer.before.end()) {
      layer.likeness += evaluation::cosine(last->second, hits);
      ++layer.pairs;
    }
    layer.before[sequence] = std::move(hits);
  }

  std::vector<float> timed(const Tensor& tokens, const ops::Routing& routing,
                           const nn::ExpertWeights& weights) {
    std::set<int64_t> distinct;
    double assignments = 0;
    for (const int64_t e : routing.ids.to_ints())
      if (e >= 0) distinct.insert(e), ++assignments;
    const base::Stopwatch clock;
    const Tensor out = ops::experts(tokens, routing, *weights.routed);
    tensor::settle(out.device());
    calls.seconds.push_back(clock.seconds());
    calls.assignments.push_back(assignments);
    calls.distinct.push_back(double(distinct.size()));
    return out.to_floats();
  }

  // `open`: the undecided rows of `rows`.
  void compare(const nn::MoeWork& work, const Rows& rows, const Rows& open) {
    const std::vector<float> whole = timed(rows.tokens, rows.routing, work.weights);
    std::vector<float> undecided;
    for (size_t r = 0; r < rules_.size(); ++r) {
      if (!rules_[r].open) {
        compare(work, r, rows, whole);
      } else if (open.tokens.size(0) > 0) {
        if (undecided.empty()) undecided = timed(open.tokens, open.routing, work.weights);
        compare(work, r, open, undecided);
      }
    }
  }

  // Compares a rule on rows with `whole`, the output of the model's router.
  void compare(const nn::MoeWork& work, size_t r, const Rows& rows,
               const std::vector<float>& whole) {
    const int site = work.call.site;
    const nn::Router& router = work.gate.router();
    const std::vector<int32_t> group(static_cast<size_t>(rows.logits.size(0)), 0);
    const auto experts = static_cast<size_t>(rows.logits.size(1));
    const std::vector<double> hits = hits_of(rows.routing, experts);
    std::vector<Core> cores;
    nn::select_experts(rows.logits, router.options, rules_[r], {group, {}}, &cores);
    const auto size = static_cast<size_t>(std::count(cores[0].begin(), cores[0].end(), 1));
    const Core trials[] = {cores[0], busiest(layers[site].hits, size),
                           drawn(experts, size, random_)};
    Sums& sum = sums[{r, site}];
    sum.size += double(size);
    ++sum.samples;
    for (size_t i = 0; i < 3; ++i) {
      const ops::Routing restricted =
          nn::route_inside(rows.logits, router.options, rules_[r], {group, {}}, {trials[i]});
      sum.recall[i] += recall_of(rows.routing, trials[i]);
      sum.residual[i] += distance(timed(rows.tokens, restricted, work.weights), whole);
      sum.hits[i] += evaluation::cosine(hits_of(restricted, experts), hits);
    }
  }

  std::vector<nn::SelectionRule> rules_;
  std::mt19937 random_{1};
};

std::vector<nn::SelectionRule> rules_of(const ExpertsRequest& request,
                                        const study::TaskData& data) {
  std::vector<std::string> texts = request.selects;
  if (texts.empty())
    texts = {"des-seq:1",    "des-seq:2",    "des-vote:0.25",
             "des-vote:0.4", "des-max:0.25", "des-max:0.4"};
  std::vector<nn::SelectionRule> rules;
  for (const auto& text : texts) {
    rules.push_back(nn::parse_selection(text));
    nn::check_selection(rules.back(), data.experts, data.top_k);
    require(rules.back().coreset() && rules.back().block == 0, ErrorCode::usage,
            "'{}' has no coreset; expected des-seq, des-vote, des-max, des-norm4 or des-peak",
            text);
  }
  return rules;
}

ExpertStudy study_of(const Observer& observer, const std::vector<nn::SelectionRule>& rules,
                     const nn::Geometry& geometry) {
  ExpertStudy study;
  for (const auto& [site, layer] : observer.layers) {
    const nn::ExpertSite& s = geometry.experts[static_cast<size_t>(site)];
    for (const auto& [tokens, samples] : layer.samples)
      study.unique.push_back(
          {s.block, tokens, layer.distinct.at(tokens) / double(samples),
           s.experts * (1 - std::pow(1 - double(s.top_k) / s.experts, double(tokens))), samples});
  }
  for (const auto& [site, layer] : observer.layers)
    if (layer.pairs > 0)
      study.likeness.push_back({geometry.experts[static_cast<size_t>(site)].block,
                                layer.likeness / double(layer.pairs), layer.pairs});
  const auto fit = evaluation::fit_two(observer.calls.assignments, observer.calls.distinct,
                                       observer.calls.seconds);
  study.per_assignment = fit.a;
  study.per_expert = fit.b;
  study.explained = fit.r2;
  for (const auto& [key, sum] : observer.sums) {
    const auto n = double(sum.samples);
    CoresetQuality q{nn::to_string(rules[key.first]),
                     geometry.experts[static_cast<size_t>(key.second)].block,
                     sum.size / n,
                     {},
                     {},
                     {},
                     sum.samples};
    CoresetQuality::Of* parts[] = {&q.rule, &q.fixed, &q.random};
    for (size_t i = 0; i < 3; ++i)
      *parts[i] = {sum.recall[i] / n, sum.residual[i] / n, sum.hits[i] / n};
    study.coresets.push_back(q);
  }
  return study;
}

CompleteRequest asking(CompleteRequest as, const std::string& prompt, int64_t max_tokens) {
  as.prompts = {prompt};
  as.prompt_ids.clear();
  as.chat.clear();
  as.select = "vanilla";
  as.as_published = true;  // passes contain a single block
  as.max_tokens = max_tokens;
  return as;
}

}  // namespace

ExpertStudy study_experts(const std::string& name, const RunOptions& options,
                          const ExpertsRequest& request, const std::stop_token& stop) {
  require(options.plan.ranks() == 1, ErrorCode::plan,
          "eval experts watches one rank, not {}; leave `plan` and `ranks` out",
          options.plan.ranks());
  const base::BindStop bind_stop(stop);
  runtime::ModelState state;
  runtime::open_model(name, options, state);
  const study::TaskData data =
      study::read_task_data(name, request.data, request.limit, request.max_tokens);
  const auto rules = rules_of(request, data);
  Observer observer(rules);
  completion::PassWatch watch;
  watch.before = [&](const auto& prompts) { observer.sequences = prompts; };
  watch.experts = [&](const nn::MoeWork& work) { observer.see(work); };
  CompleteControl control;
  control.stop = stop;
  double decided = 0, tokens = 0;
  for (const bool weigh : {false, true}) {  // the busiest experts first
    observer.weigh = weigh;
    for (const auto& example : data.examples) {
      observer.forget();
      const CompleteResult result = pipeline::complete(
          state, asking(request.complete, example.prompt, data.max_tokens), control, watch);
      for (const auto& pass : result.completions.at(0).passes) {
        tokens += double(pass.committed);
        if (pass.ruled) decided += double(pass.committed);
      }
    }
  }
  ExpertStudy study = study_of(observer, rules, state.language->geometry(state.dtype()));
  study.decided = tokens > 0 ? decided / tokens : 1;
  return study;
}

std::string to_json(const ExpertStudy& study) {
  Json unique = Json::array(), likeness = Json::array(), coresets = Json::array();
  for (const auto& l : study.likeness)
    likeness.push_back({{"layer", l.layer}, {"cosine", l.cosine}, {"samples", l.samples}});
  for (const auto& u : study.unique)
    unique.push_back({{"layer", u.layer},
                      {"tokens", u.tokens},
                      {"distinct", u.distinct},
                      {"independent", u.independent},
                      {"samples", u.samples}});
  for (const auto& c : study.coresets) {
    const auto to_object = [](const CoresetQuality::Of& o) {
      return Json{{"recall", o.recall}, {"residual", o.residual}, {"hits", o.hits}};
    };
    coresets.push_back({{"select", c.select},
                        {"layer", c.layer},
                        {"size", c.size},
                        {"rule", to_object(c.rule)},
                        {"fixed", to_object(c.fixed)},
                        {"random", to_object(c.random)},
                        {"samples", c.samples}});
  }
  return Json{{"decided", study.decided},
              {"unique", unique},
              {"likeness", likeness},
              {"coresets", coresets},
              {"latency",
               {{"seconds_per_assignment", study.per_assignment},
                {"seconds_per_expert", study.per_expert},
                {"explained", study.explained}}}}
      .dump(2);
}

}  // namespace tessera
