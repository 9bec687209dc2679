#include "planner/language.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "planner/search.h"
#include "planner/simulate.h"
#include "sample/canvas.h"

namespace tessera::planner {
namespace {

// Returns a recording with a single step of `all`.
Recording step_of(const Recording& all, size_t step) {
  Recording one{all.ops, all.ways, all.letters, {}, 1, 1};
  for (const RankRecording& rank : all.ranks) one.ranks.push_back({{}, {rank.steps.at(step)}, {}});
  return one;
}

}  // namespace

LanguageSubject::LanguageSubject(std::unique_ptr<runtime::ModelState> state,
                                 const PredictionRequest& request)
    : state_(std::move(state)), passes_(request.generate.steps.value_or(0)) {
  require(request.prompt_tokens >= 0, ErrorCode::usage,
          "`prompt_tokens` {}: expected 1 or more, or 0 for the usual number",
          request.prompt_tokens);
  require(request.answer_tokens >= 0, ErrorCode::usage,
          "`answer_tokens` {}: expected 1 or more, or 0 for the usual number",
          request.answer_tokens);
  require(request.generate.count >= 1, ErrorCode::usage, "`count` {}: expected 1 or more",
          request.generate.count);
  sketch_ = {request.generate.count, request.prompt_tokens, request.answer_tokens};
}

int LanguageSubject::experts() const { return state_->language->spec().experts; }

// Weights are cut along tensor; tokens are spread along data, and experts lie over them.
std::vector<Plan> LanguageSubject::plans(int ranks, bool fused) const {
  std::vector<Plan> found;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0) continue;
    Plan plan;
    plan.tensor = tensor;
    plan.data = ranks / tensor;
    if (plan.data == 1) found.push_back(plan);
    if (experts() == 0 || plan.data == 1) continue;
    plan.expert = plan.data;
    while (plan.expert > experts() && plan.expert % 2 == 0) plan.expert /= 2;
    found.push_back(plan);
    if (!fused) continue;
    plan.moe = MoeForm::fused;
    found.push_back(plan);
  }
  return found;
}

LanguageSubject::RecordedPlan LanguageSubject::of(const Plan& plan) {
  const auto wrong = problems(plan, plan.ranks());
  require(wrong.empty(), ErrorCode::plan, "{}", fmt::join(wrong, "; "));
  state_->options.plan = plan;
  Recorder recorder(plan.ranks());
  RecordedPlan made;
  {
    const tensor::BindRunWatcher watch(recorder.root());
    made.forecast = admission::predict_tokens(*state_, sketch_);
  }
  made.recording = recorder.take(static_cast<int>(made.forecast.passes.size()), 1);
  return made;
}

PredictedPlan LanguageSubject::predicted(const Cluster& cluster, const Plan& plan) {
  const RecordedPlan recorded = of(plan);
  const admission::TokenForecast& forecast = recorded.forecast;
  PredictedPlan made;
  made.plan = to_string(plan);
  for (const Inspection::Rank& rank : forecast.ranks) {
    made.rank_bytes = std::max(made.rank_bytes, rank.total);
    made.flops = std::max(made.flops, rank.flops);
  }
  require_room("a pass", double(made.rank_bytes), cluster);
  const int most = forecast.canvas ? sample::CanvasRule().max_denoising_steps : forecast.block;
  const int passes = passes_ > 0 ? passes_ : most;
  double waits = 0;
  for (size_t i = 0; i < forecast.passes.size(); ++i) {
    const auto [stands_for, fills] = forecast.passes[i];
    const double count = fills ? stands_for : stands_for * passes;
    const Recording step = step_of(recorded.recording, i);
    const Simulation run = simulate(step, cluster);
    (fills ? made.text : made.denoising) += count * run.seconds;
    made.passes += fills ? 0 : count;
    waits += count * run.seconds * run.waiting_share();
    made.sent_bytes += count * step.sent_bytes();
    made.messages += count * step.sent_messages();
    for (const auto& [link, bytes] : run.link_bytes) made.link_bytes[link] += count * bytes;
  }
  made.pass_seconds = made.passes > 0 ? made.denoising / made.passes : 0;
  made.waiting = made.seconds() > 0 ? waits / made.seconds() : 0;
  made.samples_per_second = made.seconds() > 0 ? sketch_.prompts / made.seconds() : 0;
  return made;
}

}  // namespace tessera::planner
