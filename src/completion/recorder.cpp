#include "completion/recorder.h"

#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "completion/options.h"
#include "sample/logprobs.h"

namespace tessera::completion {

namespace {

std::vector<std::string> block_texts(const sample::SequencePass& p, const sample::BlockWalk& walk,
                                     const sample::SpecialIds& special,
                                     const tokenizer::ByteLevelBpe* tokens) {
  std::vector<std::string> texts;
  std::set<int64_t> noise;  // positions of a canvas without an accepted token
  for (const sample::Prediction& commit : p.commits)
    if (commit.noise) noise.insert(commit.position);
  for (int64_t i = p.pass.decide.begin; i < p.pass.decide.end; ++i) {
    const int32_t id = walk.ids()[static_cast<size_t>(i)];
    if (id == special.mask || noise.contains(i))
      texts.emplace_back();
    else
      texts.push_back(tokens ? tokenizer::readable(tokens->bytes_of(id, false), true)
                             : fmt::format("{} ", id));
  }
  return texts;
}

}  // namespace

void Recorder::add(const sample::TokenPrompt& prompt) {
  working.insert(static_cast<int>(prompts.size()));
  prompts.push_back(prompt);
  answers.emplace_back(tokens, request.stop);
  result.completions.emplace_back();
  confidences.emplace_back();
}

void Recorder::before(const std::vector<sample::SequencePass>& passes) {
  std::map<int, std::vector<nn::Range>> under;
  std::map<int, nn::ExpertCache::Core> cores;
  std::map<int, std::vector<nn::Range>> sequences;
  for (const auto& p : passes)
    if (under_rule(request, spec, p.pass.kind)) {
      // A block's first pass also finishes earlier tokens; they use the router's choice, as in a
      // separate finalise pass.
      const bool part = spec.routing.block == 0 && p.pass.kind == PassKind::block;
      const nn::Range decide_range = part ? p.pass.decide : nn::kAllTokens;
      under[p.sequence] = rule.open ? p.undecided : std::vector{decide_range};
      sequences[p.sequence] = p.undecided;
      if (p.pass.decide.size() > 0) cores[p.sequence] = {p.pass.decide, decide_range};
    }
  if (watch.before) watch.before(sequences);
  policy.restrict_to(std::move(under));
  if (cache) cache->begin_pass(std::move(cores));
  ++result.forwards;
  fresh_uses = true;
  pass = {};
}

TokenConfidences::LogprobsOf Recorder::logprobs_in(const tensor::Tensor& logits) const {
  if (!request.logprobs) return {};
  return [&, host_logits = logits.to(tensor::Device::cpu)](int64_t row, int32_t token) {
    const std::span row_logits(host_logits.row<float>(row),
                               static_cast<size_t>(host_logits.size(1)));
    Completion::Logprobs logprobs;
    for (const auto& candidate :
         sample::log_probabilities(row_logits, special.mask, token, *request.logprobs))
      logprobs.top.push_back(logprob_of(tokens, candidate.token, candidate.value));
    logprobs.token = logprobs.top.front();
    logprobs.top.erase(logprobs.top.begin());
    return logprobs;
  };
}

bool Recorder::after(const sample::SequencePass& p, const sample::BlockWalk& walk,
                     const tensor::Tensor& logits) {
  if (std::exchange(fresh_uses, false)) {
    uses = usage.take();
    result.pass_seconds.push_back(pass.seconds());
  }
  Completion& completion = result.completions[static_cast<size_t>(p.sequence)];
  completion.passes.push_back(
      {p.pass.kind,
       p.pass.ids.begin,
       p.pass.ids.end,
       confidences[static_cast<size_t>(p.sequence)].take(p, special.mask, logprobs_in(logits)),
       under_rule(request, spec, p.pass.kind),
       {}});
  for (const auto& use : uses)
    if (use.sequence == p.sequence) completion.passes.back().experts.push_back(use.distinct);
  AnswerText& answer = answers[static_cast<size_t>(p.sequence)];
  const std::string text = answer.advance(walk.generated(), false);
  const auto& experts = completion.passes.back().experts;
  if (control.on_progress)
    control.on_progress({p.sequence, text, block_texts(p, walk, special, tokens),
                         p.pass.decide.begin, false,
                         std::accumulate(experts.begin(), experts.end(), int64_t{0})});
  return !answer.stopped();
}

void Recorder::ended(int sequence, const sample::Decoded& out) {
  working.erase(sequence);
  const auto i = static_cast<size_t>(sequence);
  Completion& completion = result.completions[i];
  completion.ids = out.generated;
  completion.prompt = sequence / request.n;
  completion.seed = request.seed + prompts[i].answer;
  completion.prompt_ids = prompts[i].ids;
  completion.reused = prompts[i].kept;
  for (size_t t = 0; t < completion.ids.size(); ++t) {
    const auto position = static_cast<int64_t>(prompts[i].ids.size() + t);
    completion.confidences.push_back(confidences[i].at(position).confidence);
    if (request.logprobs) completion.logprobs.push_back(confidences[i].at(position).logprobs);
  }
  const std::string rest = answers[i].advance(completion.ids, true);
  completion.text = answers[i].text();
  completion.finish = answers[i].stopped() ? FinishReason::stop
                      : out.ended          ? FinishReason::end
                                           : FinishReason::length;
  if (control.on_progress) control.on_progress({sequence, rest, {}, 0, true});
  if (!control.on_answer) return;
  result.experts_read = usage.experts_read();
  result.seconds = clock.seconds();
  control.on_answer(sequence, result);
}

}  // namespace tessera::completion
