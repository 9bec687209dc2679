#include "pipeline/completion.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "comm/collectives.h"
#include "nn/moe/sequence_usage.h"
#include "parallel/decode.h"
#include "pipeline/agree.h"
#include "pipeline/answer_text.h"
#include "pipeline/check_request.h"
#include "pipeline/denoise.h"
#include "pipeline/gather_reports.h"
#include "pipeline/kept_prefix.h"
#include "pipeline/launch.h"
#include "pipeline/said_tokens.h"
#include "pipeline/share_prompts.h"
#include "pipeline/streamed_experts.h"
#include "pipeline/token_memory.h"
#include "sample/logprobs.h"

namespace tessera::pipeline {

using sample::DecodingPolicy;

DecodingPolicy policy_of(const CompleteRequest& q, const models::TokenSpec& spec) {
  DecodingPolicy p;
  p.block = q.block > 0 ? q.block : spec.block;
  sample::read_decode(q.decode.empty() ? spec.decode : q.decode, p);
  require(q.steps == 0 || q.steps == p.steps || p.rule != DecodingPolicy::Rule::steps,
          ErrorCode::usage, "--decode {} and --steps {} contradict each other; give one", q.decode,
          q.steps);
  if (q.steps != 0) p.steps = q.steps;
  if (p.steps == 0 && spec.block_causal && (p.rule == DecodingPolicy::Rule::threshold || p.edits()))
    p.steps = p.block;  // LLaDA2's own way
  require(spec.routing.block == 0 || p.block % spec.routing.block == 0, ErrorCode::usage,
          "--block {}: this model shares experts among {} tokens; choose a multiple of that",
          p.block, spec.routing.block);
  p.cache = q.cache;
  if (p.cache.kind == KvCache::automatic)
    p.cache.kind = spec.block_causal ? KvCache::block : KvCache::dual;
  p.stop = q.stop_at_eos;
  p.temperature = q.temperature;
  p.top_k = q.top_k;
  p.top_p = q.top_p;
  p.repetition_penalty = q.repetition_penalty;
  p.seed = q.seed;
  p.as_published = q.as_published || q.select_prefill;
  sample::check_policy(p, spec.block_causal);
  return p;
}

std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& q, const Language& language,
                                            const DecodingPolicy& policy) {
  const models::TokenSpec& spec = language.spec();
  std::vector<sample::TokenPrompt> all;
  require(q.max_tokens >= 0, ErrorCode::usage,
          "--max-tokens {}: must be at least 1, and fit the context of {} together with the prompt",
          q.max_tokens, spec.context);
  const int64_t behind = q.max_tokens == 0 ? language.max_tokens() : q.max_tokens;
  for (const std::string& text : q.prompts)
    require(!text.empty(), ErrorCode::usage,
            "--prompt '': an empty prompt asks for nothing; give the text that is to be completed");
  for (const std::string& text : q.prompts) all.push_back({language.prompt(text, q.raw), behind});
  for (const auto& ids : q.prompt_ids) all.push_back({ids, behind});
  if (!q.chat.empty()) all.push_back({language.chat(q.chat), behind});
  require(!all.empty(), ErrorCode::usage,
          "there is no prompt; give --prompt, --prompt-ids or --chat");
  for (size_t i = 0; i < all.size(); ++i) {
    for (int32_t id : all[i].ids)
      require(id >= 0 && id < spec.vocabulary, ErrorCode::usage,
              "prompt {}: token id {} is outside the vocabulary of {}", i, id, spec.vocabulary);
    const auto length = static_cast<int64_t>(all[i].ids.size());
    require(length > 0, ErrorCode::usage,
            "prompt {} holds no token and asks for nothing; give what is to be completed", i);
    const bool chat = !q.chat.empty() && i + 1 == all.size();
    require(behind <= spec.context && length + behind <= spec.context, ErrorCode::usage,
            "{} of {} tokens and {} behind it do not fit the context of {}; {} or --max-tokens",
            chat ? "a chat" : fmt::format("prompt {}", i), length, behind, spec.context,
            chat ? "leave out earlier turns (/reset in 'tessera chat')" : "shorten the prompt");
  }
  require(policy.block <= spec.context, ErrorCode::usage,
          "a block of {} tokens does not fit the context of {}", policy.block, spec.context);
  std::vector<sample::TokenPrompt> answers;
  for (const auto& prompt : all)
    for (int i = 0; i < q.n; ++i) {
      answers.push_back(prompt);
      answers.back().answer = static_cast<uint64_t>(i);
    }
  return answers;
}

namespace {

// The request's, or what the model was trained with: its router under another rule is no router.
nn::SelectionRule rule_of(const CompleteRequest& q, const models::TokenSpec& spec) {
  const nn::SelectionRule asked = nn::parse_selection(q.select);
  require(spec.routing.block == 0 || asked.method == nn::SelectionRule::Method::vanilla,
          ErrorCode::usage,
          "--select {}: the tokens of a block share experts in this model's own way ({}), beside "
          "which no other is built; leave it out",
          q.select, nn::to_string(spec.routing));
  require(spec.routing.block == 0 || (q.select_refresh && !q.select_prefill), ErrorCode::usage,
          "--select-refresh and --select-prefill say which passes --select is for, and this model "
          "chooses experts in its own way ({}) in all; leave them out",
          nn::to_string(spec.routing));
  const nn::SelectionRule rule = spec.routing.block > 0 ? spec.routing : asked;
  nn::check_selection(rule, spec.experts, spec.top_k);
  return rule;
}

// Whether a pass stands under the selection rule: a model's own is for all, a request's for those
// that commit tokens, unless asked otherwise.
bool ruled(const CompleteRequest& request, const models::TokenSpec& spec, PassKind kind) {
  if (spec.routing.block > 0) return true;
  if (kind == PassKind::prefill || kind == PassKind::finalise) return request.select_prefill;
  return kind != PassKind::refresh || request.select_refresh;
}

std::vector<std::string> block_texts(const sample::SequencePass& p, const sample::BlockWalk& walk,
                                     const sample::SpecialIds& special,
                                     const tokenizer::ByteLevelBpe* tokens) {
  std::vector<std::string> texts;
  for (int64_t i = p.pass.decide.begin; i < p.pass.decide.end; ++i) {
    const int32_t id = walk.ids()[static_cast<size_t>(i)];
    if (id == special.mask)
      texts.emplace_back();
    else
      texts.push_back(tokens ? tokenizer::readable(tokens->bytes_of(id, false), true)
                             : fmt::format("{} ", id));
  }
  return texts;
}

/// What a batch leaves behind, pass by pass.
struct Course {
  const CompleteRequest& request;
  const CompleteControl& control;
  const PassWatch& watch;
  const models::TokenSpec& spec;
  const sample::SpecialIds special;
  const tokenizer::ByteLevelBpe* tokens;
  nn::SelectionPolicy& policy;
  nn::ExpertCache* cache = nullptr;  // of this rank; null: its experts are all in memory
  std::vector<sample::TokenPrompt> prompts{};
  std::vector<AnswerText> answers{};
  std::set<int> working{};  // sequences that have not ended
  CompleteResult result{};
  nn::SequenceUsage usage{};
  std::vector<nn::SequenceUsage::Use> uses{};
  std::vector<SaidTokens> said{};  // by sequence
  base::Stopwatch clock{}, pass{};
  bool fresh_uses = false;

  void add(const sample::TokenPrompt& prompt) {
    working.insert(static_cast<int>(prompts.size()));
    prompts.push_back(prompt);
    answers.emplace_back(tokens, request.stop);
    result.completions.emplace_back();
    said.emplace_back();
  }

  void before(const std::vector<sample::SequencePass>& passes) {
    std::map<int, nn::Range> under;
    std::map<int, nn::ExpertCache::Core> cores;
    std::set<int> sequences;
    for (const auto& p : passes)
      if (ruled(request, spec, p.pass.kind)) {
        // What a block's first pass keeps of tokens before it is the router's, as a finalise is.
        const bool part = spec.routing.block == 0 && p.pass.kind == PassKind::block;
        under[p.sequence] = part ? p.pass.decide : nn::kAllTokens;
        sequences.insert(p.sequence);
        if (p.pass.decide.size() > 0) cores[p.sequence] = {p.pass.decide, under[p.sequence]};
      }
    if (watch.before) watch.before(sequences);
    policy.restrict_to(std::move(under));
    if (cache) cache->begin_pass(std::move(cores));
    ++result.forwards;
    fresh_uses = true;
    pass = {};
  }

  std::string text_of(int32_t id) const {
    return tokens ? tokenizer::readable(tokens->bytes_of(id, false), true) : "";
  }

  // Of the pass's logits; nothing: nobody asked.
  SaidTokens::LogprobsOf logprobs_in(const tensor::Tensor& logits) const {
    if (!request.logprobs) return {};
    return [&, here = logits.to(tensor::Device::cpu)](int64_t row, int32_t token) {
      const std::span all(here.row<float>(row), static_cast<size_t>(here.size(1)));
      Completion::Logprobs made;
      for (const auto& one : sample::log_probabilities(all, special.mask, token, *request.logprobs))
        made.top.push_back({one.token, text_of(one.token), one.value});
      made.token = made.top.front();
      made.top.erase(made.top.begin());
      return made;
    };
  }

  bool after(const sample::SequencePass& p, const sample::BlockWalk& walk,
             const tensor::Tensor& logits) {
    if (std::exchange(fresh_uses, false)) {
      uses = usage.take();
      result.pass_seconds.push_back(pass.seconds());
    }
    Completion& made = result.completions[static_cast<size_t>(p.sequence)];
    made.passes.push_back(
        {p.pass.kind,
         p.pass.ids.begin,
         p.pass.ids.end,
         said[static_cast<size_t>(p.sequence)].take(p, special.mask, logprobs_in(logits)),
         ruled(request, spec, p.pass.kind),
         {}});
    for (const auto& use : uses)
      if (use.sequence == p.sequence) made.passes.back().experts.push_back(use.distinct);
    AnswerText& answer = answers[static_cast<size_t>(p.sequence)];
    const std::string text = answer.advance(walk.generated(), false);
    const auto& experts = made.passes.back().experts;
    if (control.on_progress)
      control.on_progress({p.sequence, text, block_texts(p, walk, special, tokens),
                           p.pass.decide.begin, false,
                           std::accumulate(experts.begin(), experts.end(), int64_t{0})});
    return !answer.stopped();
  }

  void ended(int sequence, const sample::Decoded& out) {
    working.erase(sequence);
    const auto i = static_cast<size_t>(sequence);
    Completion& made = result.completions[i];
    made.ids = out.generated;
    made.prompt = sequence / request.n;
    made.seed = request.seed + prompts[i].answer;
    made.prompt_ids = prompts[i].ids;
    made.reused = prompts[i].kept;
    for (size_t t = 0; t < made.ids.size(); ++t) {
      const auto position = static_cast<int64_t>(prompts[i].ids.size() + t);
      made.confidences.push_back(said[i].at(position).confidence);
      if (request.logprobs) made.logprobs.push_back(said[i].at(position).logprobs);
    }
    const std::string rest = answers[i].advance(made.ids, true);
    made.text = answers[i].text();
    made.finish = answers[i].stopped() ? FinishReason::stop
                  : out.ended          ? FinishReason::end
                                       : FinishReason::length;
    if (control.on_progress) control.on_progress({sequence, rest, {}, 0, true});
    if (!control.on_answer) return;
    result.experts_read = usage.experts_read();
    result.seconds = clock.seconds();
    control.on_answer(sequence, result);
  }
};

// As memory sees it, with nothing kept of an earlier request.
TokenRun token_run_of(const std::vector<sample::TokenPrompt>& prompts, const DecodingPolicy& policy,
                      const models::TokenSpec& spec, const nn::SelectionRule& rule) {
  TokenRun run{sample::sequence_lengths(prompts, policy, spec.block_causal), policy.block,
               policy.block};
  run.joined = !policy.as_published;
  run.rule = rule;
  for (const auto& prompt : prompts)
    if (policy.cache.kind == KvCache::block)
      run.prefill.push_back(static_cast<int64_t>(prompt.ids.size()) / policy.block * policy.block);
  return run;
}

/// A checked request, and what its ranks share.
struct Order {
  ModelState& state;
  const CompleteRequest& request;
  const CompleteControl& control;
  const PassWatch& watch;
  sample::DecodingPolicy policy;
  nn::SelectionRule rule;
  sample::SpecialIds special;
  std::vector<sample::TokenPrompt> prompts;
  const tokenizer::ByteLevelBpe* tokens;
  RunMeters meters;
  AtWork& at_work;
  KeptPrefix::State::Keys&
      keys;                      // of an earlier request, then of this one; no ranks: none are kept
  std::atomic<int64_t> experts;  // as TokenRun says; rank 0 changes it when prompts join
  std::vector<std::shared_ptr<const nn::TokenModel>> networks{};  // by rank, of those here
  std::mutex mutex{};
  Report report{};  // of the ranks of this process: what each did

  const models::TokenSpec& spec() const { return state.language->spec(); }
  std::shared_ptr<const nn::TokenModel> model(int rank) const;
  void describe(CompleteResult& result) const;
  std::string misfit(const std::vector<sample::TokenPrompt>& prompts);
  CompleteResult run(comm::Communicator* world);
};

std::shared_ptr<const nn::TokenModel> Order::model(int rank) const {
  return state.language->model(spec().block_causal ? policy.block : 0, state.dtype(),
                               weight_store(), rank,
                               token_portion(state, state.options, rank, experts > 0),
                               state.workers.scope(rank, &meters).memory);
}

void Order::describe(CompleteResult& result) const {
  result.has_texts = tokens != nullptr;
  result.select = nn::to_string(rule);
  result.decode = request.decode.empty() ? spec().decode : request.decode;
  result.plan = to_string(state.options.plan);
  result.device = device_name(state.place);
}

// Why sequences do not fit into memory together, ""; they do, with as many experts beside them as
// ranks then have.
std::string Order::misfit(const std::vector<sample::TokenPrompt>& sequences) {
  TokenRun run = token_run_of(sequences, policy, spec(), rule);
  try {
    plan_tokens(state, run, &at_work);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::memory) throw;
    return error.what();
  }
  if (experts == 0) return run.experts == 0 ? "" : "it would fit if not all experts were in memory";
  experts = run.experts > 0 ? run.experts : INT64_MAX;
  return "";
}

/// Prompts on their way into a batch that is at work, first come, first served. Rank 0 is asked for
/// them, and all ranks let the same ones in.
class Joining {
 public:
  Joining(Order& order, Course& course, comm::Communicator* world)
      : order_(order), course_(course), world_(world) {}

  std::vector<sample::TokenPrompt> operator()() {
    CompleteRequest more = order_.request;
    more.prompts.clear();
    more.chat.clear();
    more.prompt_ids = share_prompts(world_, order_.control.join);
    if (!more.prompt_ids.empty())
      for (auto& prompt : prompts_of(more, *order_.state.language, order_.policy))
        waiting_.push_back(std::move(prompt));
    std::vector<sample::TokenPrompt> joined;
    if (waiting_.empty() || (more.prompt_ids.empty() && course_.working.size() == refused_beside_))
      return joined;
    int64_t fit = 0;
    together(order_.state.options, world_, "lets prompts join", [&] { fit = fitting(); });
    fit = least_of(world_, fit);
    if (course_.cache)
      course_.cache->resize(
          resident_experts(order_.state, order_.experts, world_ ? world_->rank() : 0));
    for (; fit > 0; --fit) {
      course_.add(waiting_.front());
      joined.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    refused_beside_ = course_.working.size();
    return joined;
  }

 private:
  // How many fit into the memory of this process beside those at work.
  int64_t fitting() {
    if (world_ && world_->rank() > 0 && !order_.state.options.processes) return kAnyNumber;
    std::vector<sample::TokenPrompt> together;
    for (const int at_work : course_.working)
      together.push_back(course_.prompts[static_cast<size_t>(at_work)]);
    int64_t fit = 0;
    for (; fit < std::ssize(waiting_); ++fit) {
      together.push_back(waiting_[static_cast<size_t>(fit)]);
      const std::string why = order_.misfit(together);
      require(why.empty() || together.size() > 1, ErrorCode::memory, "{}", why);
      if (!why.empty()) break;
    }
    return fit;
  }

  Order& order_;
  Course& course_;
  comm::Communicator* const world_;
  std::deque<sample::TokenPrompt> waiting_;
  size_t refused_beside_ = 0;  // so many at work the first of them did not fit
};

// One rank's share; what it makes is the same on all of them.
CompleteResult Order::run(comm::Communicator* world) {
  const int rank = world ? world->rank() : 0;
  const int64_t sent_before =
      world ? world->ledger().total().bytes : 0;  // what agreed on the start
  const auto& own = networks.at(static_cast<size_t>(rank));
  const parallel::Workload workload{
      .text = {{sample::sequence_lengths(prompts, policy, spec().block_causal), rule}}};
  parallel::Residence weights;
  if (experts > 0)
    weights.experts = expert_cache(state, resident_experts(state, experts, rank), false);
  nn::ExpertCache* const cache = weights.experts.get();
  parallel::Setup setup(state.options.plan, own->geometry(), workload, world, weights);
  static const CompleteControl quiet;
  Course course{request, rank == 0 ? control : quiet, watch, spec(), special, tokens, *setup.policy,
                cache};
  for (const auto& prompt : prompts) course.add(prompt);
  describe(course.result);
  setup.experts->log().watch([&](const nn::MoeWork& work) { course.usage.see(work); });
  if (watch.experts) setup.experts->log().watch(watch.experts);
  const LastingExperts lasting(*state.language, rank, cache);
  HandedOn handed_on(keys.ranks.empty() ? nullptr : &keys.ranks.at(size_t(rank)),
                     prompts.front().kept, setup.cache->slots());
  sample::DecodeControl passes;
  passes.stop = control.stop;
  passes.before = [&](const auto& sequences) { course.before(sequences); };
  passes.after = [&](const auto& p, const auto& walk, const auto& logits) {
    handed_on.see(walk);
    return course.after(p, walk, logits);
  };
  passes.ended = [&](int sequence, const auto& out) { course.ended(sequence, out); };
  if (control.join) passes.join = Joining(*this, course, world);
  course.clock = {};
  parallel::decode(*own, prompts, policy, special, setup, passes);
  course.result.seconds = course.clock.seconds();
  course.result.experts_read = course.usage.experts_read();
  const int64_t sent = world ? world->ledger().total().bytes - sent_before : 0;
  const std::lock_guard lock(mutex);
  Report::Rank& mine =
      report.per_rank.at(state.workers.ranks.empty() ? 0 : static_cast<size_t>(rank));
  mine = work_of(state.workers.scope(rank, &meters), sent);
  if (cache) mine.streamed = streamed_of(state, rank, *cache);
  return std::move(course.result);
}

CompleteResult run_ranks(Order& order) {
  const ModelState& state = order.state;
  const Plan& plan = state.options.plan;
  const Processes* const processes = state.options.processes;
  order.networks.resize(static_cast<size_t>(plan.world()));
  together(state.options, "loads its part", [&] {
    for (int r = 0; r < plan.world(); ++r)
      if (!processes || processes->rank() == r)
        order.networks[static_cast<size_t>(r)] = order.model(r);
  });
  order.report.per_rank.resize(order.meters.ranks.size());
  CompleteResult result;
  launch_ranks(state, order.meters, order.control.stop, [&](comm::Communicator* world) {
    CompleteResult made = order.run(world);
    if (!world || world->rank() == 0) result = std::move(made);
    if (world && processes) gather_reports(*world, order.report);
  });
  result.bytes_read = order.meters.all->total().bytes;
  result.peak_bytes = peaks_of(*order.meters.memory);
  result.per_rank = order.report.per_rank;
  for (const Report::Rank& rank : result.per_rank) {
    result.bytes_sent += rank.sent_bytes;
    if (rank.streamed) add_streamed(*rank.streamed, result.streamed);
  }
  if (!processes || plan.world() == 1) return result;
  int64_t read[] = {static_cast<int64_t>(result.bytes_read)};
  comm::all_reduce(world_of(state.place, *processes), read, {"report", -1});
  result.bytes_read = static_cast<double>(read[0]);
  result.elsewhere = !first_process(state.options);
  return result;
}

void require_language(const ModelState& state) {
  require(state.language != nullptr, ErrorCode::usage, "'{}' is no language model; {}", state.name,
          state.layer ? "'tessera forward --component moe_layer' runs it"
                      : "'tessera generate' makes images with it");
}

void require_stops(const CompleteRequest& q, const Language& language) {
  require(language.has_tokenizer() || q.stop.empty(), ErrorCode::usage,
          "stop texts need a tokenizer.json in the folder");
}

}  // namespace

namespace {

// What one should know of a rule that a run stands under.
void note_rule(const CompleteRequest& q, const models::TokenSpec& spec,
               const nn::SelectionRule& rule, const DecodingPolicy& policy,
               const CompleteControl& control) {
  const int most =
      std::max(rule.method == nn::SelectionRule::Method::block ? 0 : rule.k, rule.take);
  if (control.on_note && most > spec.top_k)
    control.on_note(fmt::format(
        "--select {} gives a token up to {} experts, more than the {} that the model was made for",
        q.select, most, spec.top_k));
  if (control.on_note && spec.remove >= 0 && !policy.edits())
    control.on_note(
        fmt::format("--decode {}: tokens {} and {}, by which this model deletes a token and makes "
                    "room for one, stay in the text; edit:T,E acts upon them",
                    q.decode, spec.remove, spec.split));
}

// What an earlier request left, while this one has it; it goes back however this one ends.
struct Lent {
  KeptPrefix* prefix;
  KeptPrefix::State::Keys keys{};  // no ranks: nothing is kept

  Lent(const ModelState& state, const CompleteRequest& q, const DecodingPolicy& policy,
       KeptPrefix* of, std::vector<sample::TokenPrompt>& prompts)
      : prefix(of) {
    if (!prefix || policy.cache.kind != KvCache::block || q.select_prefill || prompts.size() > 1 ||
        state.options.processes)
      return;
    const auto ranks = static_cast<size_t>(state.options.plan.world());
    keys =
        prefix->state().take(state.identity, policy.block, ranks, prompts[0].ids, prompts[0].kept);
    keys.model = state.identity;
    keys.block = policy.block;
    keys.ranks.resize(ranks);
  }
  ~Lent() {
    if (!keys.ranks.empty()) prefix->state().put(std::move(keys));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
};

}  // namespace

void check_token_plan(const ModelState& state) {
  const Plan& plan = state.options.plan;
  parallel::require_runnable(plan, state.language->geometry(state.dtype()),
                             {.text = parallel::Workload::Sequences{}});
  if (plan.tensor > 1) state.language->geometry(state.dtype(), {0, plan.tensor});
}

void check(ModelState& state, const CompleteRequest& q, const std::stop_token& stop) {
  check_request(q);
  const base::BindStop bind(stop);
  require_language(state);
  check_token_plan(state);
  const models::TokenSpec& spec = state.language->spec();
  const sample::DecodingPolicy policy = policy_of(q, spec);
  const nn::SelectionRule rule = rule_of(q, spec);
  const auto prompts = prompts_of(q, *state.language, policy);
  require_stops(q, *state.language);
  TokenRun run = token_run_of(prompts, policy, spec, rule);
  plan_tokens(state, run);
}

CompleteResult complete(ModelState& state, const CompleteRequest& q, const CompleteControl& control,
                        const PassWatch& watch) {
  check_request(q);
  const Turn turn(state);
  const base::BindStop stop(control.stop);
  require_language(state);
  agree(state.options, [&] { return terms_of(state, q); });
  check_token_plan(state);
  Language& language = *state.language;
  AtWork at_work(state.residence ? &*state.residence : nullptr);
  const RunMeters meters(state.workers.ranks.size());
  const tensor::BindScope bind(state.workers.scope(-1, &meters));
  const models::TokenSpec& spec = language.spec();
  const sample::DecodingPolicy policy = policy_of(q, spec);
  const nn::SelectionRule rule = rule_of(q, spec);
  note_rule(q, spec, rule, policy, control);
  const sample::SpecialIds special = language.special();
  auto prompts = prompts_of(q, language, policy);
  Lent lent(state, q, policy, control.prefix, prompts);
  const tokenizer::ByteLevelBpe* tokens = language.has_tokenizer() ? &language.tokens() : nullptr;
  require_stops(q, language);
  require(!control.join || q.n == 1, ErrorCode::usage,
          "--n {}: prompts join a batch of one answer each", q.n);
  require(!control.join ||
              (state.options.plan.world() == 1 || state.options.plan.moe != MoeForm::fused),
          ErrorCode::usage,
          "prompts join no batch under moe=fused, whose buffers are for those that begin it");
  TokenRun run = token_run_of(prompts, policy, spec, rule);
  if (prompts.front().kept > 0) {
    run.kept = prompts.front().kept;
    run.kept_slots = lent.keys.ranks.front().tables.front().first.size(0);
  }
  const auto note = [&](const std::string& said) {
    if (control.on_note && !said.empty()) control.on_note(said);
  };
  together(state.options, "plans the run", [&] { note(plan_tokens(state, run, &at_work)); });
  require(run.experts == 0 || !watch.experts, ErrorCode::memory,
          "this measurement looks at all experts of a layer, which do not fit into memory beside "
          "those of the others: give more memory");
  if (state.options.memory_budget > 0 && run.experts == 0)
    note(
        assumed_routing(most_uneven(state.options.plan, language.geometry(state.dtype()), &run.rule,
                                    [&] { return rehearse_tokens(state, state.options, run); })));
  const std::string said = control.on_note ? language.check(state.dtype()) : "";
  note(said);
  Order order{state,  q,      control, watch,     policy,     rule, special, std::move(prompts),
              tokens, meters, at_work, lent.keys, run.experts};
  CompleteResult result = run_ranks(order);
  if (result.elsewhere) order.describe(result);
  note(beyond_budget(state.options, result.peak_bytes, result.per_rank));
  return result;
}

}  // namespace tessera::pipeline
