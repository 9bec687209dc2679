#include "completion/run.h"

#include <utility>

#include "cluster/agree.h"
#include "cluster/gather_reports.h"
#include "comm/collectives.h"
#include "completion/admitter.h"
#include "completion/streamed_experts.h"
#include "parallel/decode.h"
#include "runtime/launch.h"
#include "tensor/run_watcher.h"

namespace tessera::completion {

std::shared_ptr<const nn::TokenModel> CompletionRun::model(int rank) const {
  return state.language->model(spec().block_causal && !spec().canvas ? policy.block : 0,
                               state.dtype(), runtime::weight_store(), rank,
                               token_portion(state, state.options, rank, experts > 0),
                               state.workers.scope(rank, &meters).memory);
}

void CompletionRun::describe(CompleteResult& result) const {
  result.has_texts = tokens != nullptr;
  result.select = nn::to_string(rule);
  result.decode = request.decode.empty() ? spec().decode : request.decode;
  result.max_tokens = prompts.front().max_tokens;
  result.limit = request.max_tokens > 0              ? "request"
                 : state.language->says_max_tokens() ? "generation_config.json"
                                                     : "default";
  result.plan = to_string(state.options.plan);
  result.device = runtime::device_name(state.place);
}

std::string CompletionRun::misfit(const std::vector<sample::TokenPrompt>& sequences) {
  TokenRun run = token_run_of(sequences, policy, spec(), rule);
  if (std::string reason = admit(run); !reason.empty()) return reason;
  if (experts == 0) return run.experts == 0 ? "" : "it would fit if not all experts were in memory";
  experts = run.experts > 0 ? run.experts : INT64_MAX;
  return "";
}

// A rank's share of the run; all ranks return the same result.
CompleteResult CompletionRun::run(comm::Communicator* world) {
  const int rank = world ? world->rank() : 0;
  const int64_t sent_before =
      world ? world->ledger().total().bytes : 0;  // traffic of the agreement before the run
  const auto& own = networks.at(static_cast<size_t>(rank));
  const parallel::Workload workload{
      .text = {{sample::sequence_lengths(prompts, policy, spec().block_causal), rule}}};
  parallel::Residence weights;
  if (experts > 0)
    weights.experts = expert_cache(state, resident_experts(state, experts, rank), false);
  nn::ExpertCache* const cache = weights.experts.get();
  parallel::Setup setup(state.options.plan, own->geometry(), workload, world, weights);
  static const CompleteControl quiet;
  Recorder recorder{
      request, rank == 0 ? control : quiet, watch, spec(), special, tokens, *setup.policy, rule,
      cache};
  for (const auto& prompt : prompts) recorder.add(prompt);
  describe(recorder.result);
  setup.experts->log().watch([&](const nn::MoeWork& work) { recorder.usage.see(work); });
  if (watch.experts) setup.experts->log().watch(watch.experts);
  const ExpertCacheLease lasting(*state.language, rank, cache);
  RankPrefix rank_prefix(lease, rank, recorder.prompts, control.join != nullptr,
                         static_cast<int>(own->geometry().attention.size()), setup.cache->slots());
  sample::DecodeControl passes;
  passes.stop = control.stop;
  passes.before = [&](const auto& sequences) {
    tensor::watch_part("step", static_cast<int>(recorder.result.forwards));
    rank_prefix.adopt();
    recorder.before(sequences);
  };
  passes.after = [&](const auto& p, const auto& walk, const auto& logits) {
    rank_prefix.see(p.sequence, walk);
    return recorder.after(p, walk, logits);
  };
  passes.ended = [&](int sequence, const auto& out) {
    rank_prefix.ended(sequence);
    recorder.ended(sequence, out);
  };
  if (control.join) passes.join = Admitter(*this, recorder, world);
  recorder.clock = {};
  parallel::decode(*own, prompts, policy, special, setup, passes);
  tensor::watch_part("");
  recorder.result.seconds = recorder.clock.seconds();
  recorder.result.experts_read = recorder.usage.experts_read();
  const int64_t sent_bytes = world ? world->ledger().total().bytes - sent_before : 0;
  const std::lock_guard lock(mutex);
  for (const auto& load : setup.expert_loads()) cluster::add_counts(load, report.expert_load);
  Report::Rank& own_report =
      report.per_rank.at(state.workers.ranks.empty() ? 0 : static_cast<size_t>(rank));
  own_report = runtime::work_of(state.workers.scope(rank, &meters), sent_bytes);
  if (cache) own_report.streamed = streamed_of(state, rank, *cache);
  return std::move(recorder.result);
}

void CompletionRun::load() {
  const Plan& plan = state.options.plan;
  networks.resize(static_cast<size_t>(plan.world()));
  for (const int r : state.ranks().mine(plan.world())) networks[static_cast<size_t>(r)] = model(r);
}

CompleteResult CompletionRun::launch() {
  report.per_rank.resize(meters.ranks.size());
  CompleteResult result;
  runtime::launch_ranks(state, meters, control.stop, [&](comm::Communicator* world) {
    CompleteResult rank_result = run(world);
    if (!world || world->rank() == 0) result = std::move(rank_result);
    state.ranks().gather(world, report);
  });
  result.bytes_read = meters.all->total().bytes;
  result.peak_bytes = runtime::peaks_of(*meters.memory);
  result.per_rank = report.per_rank;
  result.expert_load = report.expert_load;
  for (const Report::Rank& rank : result.per_rank) {
    result.bytes_sent += rank.sent_bytes;
    if (rank.streamed) add_streamed(*rank.streamed, result.streamed);
  }
  result.bytes_read =
      static_cast<double>(state.ranks().sum(static_cast<int64_t>(result.bytes_read)));
  result.elsewhere = !state.ranks().first();
  return result;
}

}  // namespace tessera::completion
