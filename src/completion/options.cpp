#include "completion/options.h"

#include <algorithm>

#include "base/fail.h"
#include "load/safetensors.h"
#include "parallel/setup.h"

namespace tessera::completion {

void check_token_plan(const runtime::ModelState& state) {
  const Plan& plan = state.options.plan;
  parallel::require_runnable(plan, state.language->geometry(state.dtype()),
                             {.text = parallel::Workload::Sequences{}});
  if (plan.tensor > 1) state.language->geometry(state.dtype(), {0, plan.tensor});
}

namespace {

std::shared_ptr<const sample::CanvasDraws> draws_of(const CompleteRequest& q) {
  if (q.draws.empty()) return nullptr;
  const load::SafetensorsFile file(q.draws);
  auto draws = std::make_shared<sample::CanvasDraws>();
  draws->init = file.get("init");
  draws->noise = file.get("noise");
  if (file.has("uniform")) draws->uniform = file.get("uniform");
  return draws;
}

// Reads the fields of a request for all ways of decoding.
void read_common(const CompleteRequest& q, sample::DecodingPolicy& p) {
  p.cache = q.cache;
  p.stop = q.stop_at_eos;
  p.temperature = q.temperature;
  p.top_k = q.top_k;
  p.top_p = q.top_p;
  p.repetition_penalty = q.repetition_penalty;
  p.seed = q.seed;
  p.as_published = q.as_published || q.select_prefill;
}

// The policy of a model for canvases.
void read_canvas(const CompleteRequest& q, const models::TokenSpec& spec,
                 sample::DecodingPolicy& p) {
  if (q.steps > 0) p.canvas.max_denoising_steps = q.steps;
  p.canvas.vocabulary = static_cast<int32_t>(spec.vocabulary);
  p.canvas.draws = draws_of(q);
  p.as_published = q.as_published;
  if (p.cache.kind == KvCache::automatic) p.cache.kind = KvCache::block;
}

}  // namespace

sample::DecodingPolicy policy_of(const CompleteRequest& q, const models::TokenSpec& spec) {
  using sample::DecodingPolicy;
  DecodingPolicy p;
  p.block = q.block > 0 ? q.block : spec.block;
  sample::read_decode(spec.decode, p);
  if (!q.decode.empty()) sample::read_decode(q.decode, p);
  require(p.denoises() == spec.canvas, ErrorCode::usage, "`decode` {}: {}",
          q.decode.empty() ? spec.decode : q.decode,
          spec.canvas ? "this model denoises canvases; expected canvas:NAME=VALUE"
                      : "canvases are for models that denoise them; this one fills in masks");
  require(q.n == 1 || q.temperature > 0 || p.denoises(), ErrorCode::usage,
          "`n` {}: at temperature 0 all answers are one and the same; add `temperature` 0.8", q.n);
  read_common(q, p);
  if (p.denoises()) {
    read_canvas(q, spec, p);
    sample::check_policy(p, spec.block_causal);
    return p;
  }
  require(q.draws.empty(), ErrorCode::usage,
          "draws are for models that denoise canvases; this one fills in masks");
  require(q.steps == 0 || q.steps == p.steps || p.rule != DecodingPolicy::Rule::steps,
          ErrorCode::usage, "`decode` {} and `steps` {} contradict each other; give one", q.decode,
          q.steps);
  if (q.steps != 0) p.steps = q.steps;
  if (p.steps == 0 && spec.block_causal && (p.rule == DecodingPolicy::Rule::threshold || p.edits()))
    p.steps = p.block;  // LLaDA2's decoding
  require(spec.routing.block == 0 || p.block % spec.routing.block == 0, ErrorCode::usage,
          "`block` {}: this model shares experts among {} tokens; choose a multiple of that",
          p.block, spec.routing.block);
  if (p.cache.kind == KvCache::automatic)
    p.cache.kind = spec.block_causal ? KvCache::block : KvCache::dual;
  sample::check_policy(p, spec.block_causal);
  return p;
}

nn::SelectionRule rule_of(const CompleteRequest& q, const models::TokenSpec& spec) {
  const nn::SelectionRule requested_rule = nn::parse_selection(q.select);
  require(spec.routing.block == 0 || requested_rule.method == nn::SelectionRule::Method::vanilla,
          ErrorCode::usage,
          "`select` {}: the tokens of a block share experts in this model's own way ({}), beside "
          "which no other is built; leave it out",
          q.select, nn::to_string(spec.routing));
  require(spec.routing.block == 0 || (q.select_refresh && !q.select_prefill), ErrorCode::usage,
          "`select_refresh` and `select_prefill` say which passes `select` is for, and this model "
          "chooses experts in its own way ({}) in all; leave them out",
          nn::to_string(spec.routing));
  const nn::SelectionRule rule = spec.routing.block > 0 ? spec.routing : requested_rule;
  nn::check_selection(rule, spec.experts, spec.top_k);
  return rule;
}

bool under_rule(const CompleteRequest& request, const models::TokenSpec& spec, PassKind kind) {
  if (spec.routing.block > 0) return true;
  if (kind == PassKind::prefill || kind == PassKind::finalise) return request.select_prefill;
  return kind != PassKind::refresh || request.select_refresh;
}

namespace {

// Notes options of the request without effect.
void note_without_effect(const CompleteRequest& q, const sample::DecodingPolicy& policy,
                         const CompleteControl& control) {
  if (q.seed != 0 && policy.denoises() && policy.canvas.draws)
    control.on_note("`seed` has no effect: `draws` holds what is drawn");
  else if (q.seed != 0 && !policy.denoises() && policy.temperature == 0)
    control.on_note(
        "`seed` has no effect: at temperature 0 nothing is drawn; add `temperature` 0.8");
  if (q.raw && q.prompts.empty() && !(q.prompt_ids.empty() && q.chat.empty()))
    control.on_note("`raw` has no effect: it is for prompts that are texts");
}

}  // namespace

void note_request(const CompleteRequest& q, const models::TokenSpec& spec,
                  const nn::SelectionRule& rule, const sample::DecodingPolicy& policy,
                  const CompleteControl& control) {
  if (!control.on_note) return;
  const int most =
      std::max(rule.method == nn::SelectionRule::Method::block ? 0 : rule.k, rule.take);
  if (most > spec.top_k)
    control.on_note(fmt::format(
        "`select` {} gives a token up to {} experts, more than the {} that the model was made for",
        q.select, most, spec.top_k));
  if (spec.remove >= 0 && !policy.edits())
    control.on_note(
        fmt::format("`decode` {}: tokens {} and {}, by which this model deletes a token and makes "
                    "room for one, stay in the text; edit:T,E acts upon them",
                    q.decode, spec.remove, spec.split));
  note_without_effect(q, policy, control);
}

}  // namespace tessera::completion
