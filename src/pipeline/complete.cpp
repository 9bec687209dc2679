#include "pipeline/complete.h"

#include <algorithm>
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
  const bool cut =
      std::ranges::count(result.completions, FinishReason::length, &Completion::finish) > 0;
  if (!cut || result.limit == "request") return "";
  return fmt::format("an answer ended at {} tokens, {}; `max_tokens` allows more",
                     result.max_tokens,
                     result.limit == "default" ? "where the folder says no length"
                                               : "'max_new_tokens' of generation_config.json");
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
  const cluster::ExclusiveRequest alone(state.ranks(), state.name);
  const base::BindStop stop(control.stop);
  require_language(state);
  state.ranks().require_same([&] { return fingerprint_of(state, q); });
  completion::check_token_plan(state);
  runtime::Language& language = *state.language;
  runtime::MemoryReservation reservation(state.residence ? &*state.residence : nullptr);
  const runtime::RunMeters meters(state.workers.ranks.size());
  const tensor::BindScope bind(state.workers.scope(-1, &meters));
  const models::TokenSpec& spec = language.spec();
  const sample::DecodingPolicy policy = completion::policy_of(q, spec);
  const nn::SelectionRule rule = completion::rule_of(q, spec);
  completion::note_request(q, spec, rule, policy, control);
  const sample::SpecialIds special = language.special();
  auto prompts = completion::prompts_of(q, language, policy);
  completion::PrefixLease lease(state, q, policy, control.prefix, prompts);
  const tokenizer::ByteLevelBpe* tokens = language.has_tokenizer() ? &language.tokens() : nullptr;
  require_stops(q, language);
  require_joining(q, control, state.options.plan);
  completion::TokenRun run = completion::token_run_of(prompts, policy, spec, rule);
  if (prompts.front().kept > 0) {
    run.kept = prompts.front().kept;
    run.kept_slots = lease.keys.ranks.front().tables.front().first.size(0);
  }
  const auto note = [&](const std::string& said) {
    if (control.on_note && !said.empty()) control.on_note(said);
  };
  state.ranks().all_or_none("plans the run",
                            [&] { note(admission::plan_tokens(state, run, &reservation)); });
  require(run.experts == 0 || !watch.experts, ErrorCode::memory,
          "this measurement looks at all experts of a layer, which do not fit into memory beside "
          "those of the others: give more memory");
  if (state.options.memory_budget > 0 && run.experts == 0)
    note(admission::assumed_routing(admission::most_uneven(
        state.options.plan, language.geometry(state.dtype()), &run.rule,
        [&] { return admission::dry_run_tokens(state, state.options, run); })));
  note(control.on_note ? language.check(state.dtype()) : "");
  completion::CompletionRun ranks{
      .state = state,
      .request = q,
      .control = control,
      .watch = watch,
      .policy = policy,
      .rule = rule,
      .special = special,
      .prompts = std::move(prompts),
      .tokens = tokens,
      .meters = meters,
      .admit = [&](completion::TokenRun& more) { return misfit(state, more, reservation); },
      .keys = lease.keys,
      .experts = run.experts};
  CompleteResult result = ranks.all();
  if (result.elsewhere) ranks.describe(result);
  note(admission::beyond_budget(state.options, result.peak_bytes, result.per_rank));
  note(folders_limit(result));
  return result;
}

}  // namespace tessera::pipeline
