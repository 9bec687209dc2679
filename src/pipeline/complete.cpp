#include "pipeline/complete.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "admission/token_memory.h"
#include "base/fail.h"
#include "base/stop.h"
#include "cluster/agree.h"
#include "completion/options.h"
#include "completion/prompts.h"
#include "completion/run.h"
#include "completion/token_run.h"
#include "pipeline/check_request.h"
#include "pipeline/fingerprint.h"
#include "pipeline/run.h"

namespace tessera::pipeline {
namespace {

void require_language(const runtime::ModelState& state) {
  require(state.language != nullptr, ErrorCode::usage, "'{}' is no language model; {}", state.name,
          state.layer ? "a forward with `component` moe_layer runs it" : "it generates images");
}

void require_stops(const CompleteRequest& q, const runtime::Language& language) {
  require(language.has_tokenizer() || q.stop.empty(), ErrorCode::usage,
          "stop texts need a tokenizer.json in the folder");
}

// Reserves memory for a run; returns the reason of a failure, or "".
std::string misfit(runtime::ModelState& state, completion::TokenRun& run,
                   runtime::MemoryReservation& reservation) {
  try {
    admission::plan_tokens(state, run, &reservation);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::memory) throw;
    return error.what();
  }
  return "";
}

void require_joining(const CompleteRequest& q, const CompleteControl& control, const Plan& plan) {
  if (!control.join) return;
  require(q.n == 1, ErrorCode::usage, "`n` {}: prompts join a batch of one answer each", q.n);
  require(plan.world() == 1 || plan.moe != MoeForm::fused, ErrorCode::usage,
          "prompts join no batch under moe=fused, whose buffers are for those that begin it");
}

// A note on answers cut at the folder's length; else "".
std::string folders_limit(const CompleteResult& result) {
  const bool is_cut =
      std::ranges::count(result.completions, FinishReason::length, &Completion::finish) > 0;
  if (!is_cut || result.limit == "request") return "";
  return fmt::format("an answer ended at {} tokens, {}; `max_tokens` allows more",
                     result.max_tokens,
                     result.limit == "default" ? "where the folder says no length"
                                               : "'max_new_tokens' of generation_config.json");
}

/// A request for texts.
class TextRun final : public Run {
 public:
  TextRun(runtime::ModelState& state, const CompleteRequest& request,
          const CompleteControl& control, const completion::PassWatch& watch)
      : state_(state),
        request_(request),
        control_(control),
        watch_(watch),
        reservation_(state.admitted.residence ? &*state.admitted.residence : nullptr),
        meters_(state.workers.ranks.size()) {}
  CompleteResult result{};

 protected:
  void agree() override {
    state_.ranks().require_same([&] { return fingerprint_of(state_, request_); });
  }
  void admit() override;
  void announce() override;
  const char* loads() const override { return "loads its part"; }
  void load() override {
    const tensor::BindScope bind(scope());
    ranks_->load();
  }
  void launch() override {
    const tensor::BindScope bind(scope());
    result = ranks_->launch();
  }
  void report() override {
    if (result.elsewhere) ranks_->describe(result);
    note(admission::beyond_budget(state_.options, result.peak_bytes, result.per_rank));
    note(folders_limit(result));
  }

 private:
  tensor::Scope scope() const { return state_.workers.scope(-1, &meters_); }
  void note(const std::string& text) const {
    if (control_.on_note && !text.empty()) control_.on_note(text);
  }

  runtime::ModelState& state_;
  const CompleteRequest& request_;
  const CompleteControl& control_;
  const completion::PassWatch& watch_;
  runtime::MemoryReservation reservation_;
  const runtime::RunMeters meters_;
  sample::DecodingPolicy policy_{};
  nn::SelectionRule rule_{};
  std::vector<sample::TokenPrompt> prompts_{};
  std::optional<completion::PrefixLease> lease_{};
  completion::TokenRun run_{};
  std::unique_ptr<completion::CompletionRun> ranks_{};
};

void TextRun::admit() {
  completion::check_token_plan(state_);
  runtime::Language& language = *state_.language;
  const tensor::BindScope bind(scope());
  const models::TokenSpec& spec = language.spec();
  policy_ = completion::policy_of(request_, spec);
  rule_ = completion::rule_of(request_, spec);
  completion::note_request(request_, spec, rule_, policy_, control_);
  prompts_ = completion::prompts_of(request_, language, policy_);
  lease_.emplace(state_, request_, policy_, control_, prompts_);
  require_stops(request_, language);
  require_joining(request_, control_, state_.options.plan);
  run_ = completion::token_run_of(prompts_, policy_, spec, rule_);
  note(admission::plan_tokens(state_, run_, &reservation_));
}

void TextRun::announce() {
  const tensor::BindScope bind(scope());
  runtime::Language& language = *state_.language;
  require(run_.experts == 0 || !watch_.experts, ErrorCode::memory,
          "this measurement looks at all experts of a layer, which do not fit into memory beside "
          "those of the others: give more memory");
  if (state_.options.memory_budget > 0 && run_.experts == 0)
    note(admission::assumed_routing(admission::most_uneven(
        state_.options.plan, language.geometry(state_.dtype()), &run_.rule,
        [&] { return admission::dry_run_tokens(state_, state_.options, run_); })));
  note(control_.on_note ? language.check(state_.dtype()) : "");
  ranks_.reset(new completion::CompletionRun{
      .state = state_,
      .request = request_,
      .control = control_,
      .watch = watch_,
      .policy = policy_,
      .rule = rule_,
      .special = language.special(),
      .prompts = std::move(prompts_),
      .tokens = language.has_tokenizer() ? &language.tokens() : nullptr,
      .meters = meters_,
      .admit = [this](completion::TokenRun& more) { return misfit(state_, more, reservation_); },
      .lease = *lease_,
      .experts = run_.experts});
}

}  // namespace

void check(runtime::ModelState& state, const CompleteRequest& q, const std::stop_token& stop) {
  check_request(q);
  const base::BindStop bind(stop);
  require_language(state);
  completion::check_token_plan(state);
  const models::TokenSpec& spec = state.language->spec();
  const sample::DecodingPolicy policy = completion::policy_of(q, spec);
  const nn::SelectionRule rule = completion::rule_of(q, spec);
  const auto prompts = completion::prompts_of(q, *state.language, policy);
  require_stops(q, *state.language);
  completion::TokenRun run = completion::token_run_of(prompts, policy, spec, rule);
  admission::plan_tokens(state, run);
}

CompleteResult complete(runtime::ModelState& state, const CompleteRequest& q,
                        const CompleteControl& control, const completion::PassWatch& watch) {
  check_request(q);
  const cluster::ExclusiveRequest exclusive(state.ranks(), state.name);
  const base::BindStop stop(control.stop);
  require_language(state);
  TextRun run(state, q, control, watch);
  run.on(state.ranks());
  return std::move(run.result);
}

}  // namespace tessera::pipeline
