#include "parallel/setup.h"

#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "nn/local.h"
#include "nn/moe/capacity_policy.h"
#include "nn/moe/recorded_routing.h"
#include "parallel/experts/fused_carrier.h"
#include "parallel/experts/fused_experts.h"
#include "parallel/sequence/displaced_kv.h"
#include "parallel/sequence/ring.h"
#include "parallel/sequence/ulysses.h"
#include "parallel/spatial/bands.h"
#include "parallel/tensor/narrow_experts.h"
#include "parallel/tensor/ordered_reduce.h"
#include "tensor/device_pool.h"
#include "tessera/words.h"

namespace tessera::parallel {
namespace {

using Problems = std::vector<std::string>;

// A number for a token, equal on every rank (splitmix64).
uint32_t token_number(uint64_t sequence, uint64_t id) {
  uint64_t x = (sequence << 32 | id) + 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ x >> 31) >> 32);
}

// Each rank of ulysses= attends with heads of its own.
void shard_problems(const Plan& plan, const nn::Geometry& geometry, Problems& problems) {
  const int parts = geometry.shard.count > 1 ? 1 : plan.tensor;  // not split yet
  int heads = plan.ulysses;
  for (const nn::AttentionSite& site : geometry.attention)
    heads = std::min(heads, std::max(site.kv_heads / parts, 1));
  if (heads >= plan.ulysses) return;
  const std::string least = heads > 1 ? fmt::format("ulysses={}", heads) : "";
  std::string instead =
      plan.ulysses % heads == 0 ? fmt::format("ring={}", plan.ring * (plan.ulysses / heads)) : "";
  if (!least.empty())
    instead = least + " or less" + (instead.empty() ? "" : ", as " + instead + "," + least);
  problems.push_back(fmt::format(
      "ulysses={}: an attention has {} head{} of keys and values{}; use {}", plan.ulysses, heads,
      heads > 1 ? "s" : "", plan.tensor > 1 ? " on a rank" : "", instead));
}

// True if each shard of a patch begins at a block of the adaptive schedule, or with the patch.
bool keeps_blocks(const Plan& plan, const Workload& workload) {
  Plan uncut{.patches = plan.patch_count(), .cut = plan.cut}, shard_plan = uncut;
  shard_plan.ring = plan.ring;
  shard_plan.ulysses = plan.ulysses;
  shard_plan.distrifusion = plan.distrifusion;
  const Workload single_sample{.grid = workload.grid, .prefix = workload.prefix};
  const Partition patches(uncut, single_sample), shards(shard_plan, single_sample);
  std::set<int64_t> begins;
  for (int p = 0; p < plan.patch_count(); ++p)
    for (const nn::Segment& s : patches.view(0, p).body) begins.insert(s.ids.begin);
  for (int rank = 0; rank < shard_plan.world(); ++rank)
    for (int p = 0; p < plan.patch_count(); ++p)
      for (const nn::Segment& segment : shards.view(rank, p).body)
        if (segment.ids.begin % kBudgetBlock != 0 && !begins.contains(segment.ids.begin))
          return false;
  return true;
}

void block_problems(const Plan& plan, const Workload& workload, Problems& problems) {
  if (plan.schedule != ExpertSchedule::adaptive || keeps_blocks(plan, workload)) return;
  std::vector<int> fit;
  Plan other{.patches = plan.patch_count(), .cut = plan.cut};
  for (int shards = 2; shards <= workload.tokens() / kBudgetBlock && shards <= kMostRanks;
       ++shards) {
    other.ulysses = shards;
    if (keeps_blocks(other, workload)) fit.push_back(shards);
  }
  Plan cuts;
  cuts.ring = plan.ring;
  cuts.ulysses = plan.ulysses;
  cuts.distrifusion = plan.distrifusion;
  problems.push_back(fmt::format(
      "schedule=adaptive takes its budget of blocks of {} tokens, which {} would cut in samples of "
      "{} tokens; {}, or choose another schedule",
      kBudgetBlock, to_string(cuts), workload.tokens(),
      fit.empty() ? "leave them out"
                  : fmt::format("use shards by the number of {}", fmt::join(fit, ", "))));
}

void stage_problems(const Plan& plan, const nn::Geometry& geometry, const Workload& workload,
                    Problems& problems) {
  const int patches = plan.patch_count();
  if (plan.pipefusion > geometry.blocks)
    problems.push_back(
        fmt::format("pipefusion={}: the model has {} blocks, and a stage one at least; use "
                    "pipefusion={} or less",
                    plan.pipefusion, geometry.blocks, geometry.blocks));
  const int64_t stage_blocks = std::accumulate(plan.stages.begin(), plan.stages.end(), int64_t{0});
  if (!plan.stages.empty() && stage_blocks != geometry.blocks)
    problems.push_back(fmt::format(
        "stages={} has {} blocks, and the model {}; give each to a stage, or leave it out",
        fmt::join(plan.stages, "+"), stage_blocks, geometry.blocks));
  const bool bands = plan.cut == PatchShape::bands;
  const int64_t most = bands ? workload.grid[1] : workload.tokens();
  if (patches > most)
    problems.push_back(fmt::format("patches={}: a sample has {} {}; use patches={} or less",
                                   patches, most, bands ? "lines" : "tokens", most));
}

// Steps are reused by all ranks alike, with all of a step's tokens.
void cache_problems(const Plan& plan, const StepCache& cache, Problems& problems) {
  std::string bad;
  const auto name = [&](bool condition, const std::string& entry) {
    if (condition) bad += (bad.empty() ? "" : ", ") + entry;
  };
  name(plan.pipefusion > 1, fmt::format("pipefusion={}", plan.pipefusion));
  name(plan.distrifusion > 1, fmt::format("distrifusion={}", plan.distrifusion));
  name(plan.patch_count() > 1, fmt::format("patches={}", plan.patch_count()));
  name(plan.shards > 0, fmt::format("shards={}", plan.shards));
  name(plan.schedule != ExpertSchedule::sync, "schedule=");
  name(plan.conditional != KeptSlot::all, "conditional=");
  if (!bad.empty())
    problems.push_back(fmt::format(
        "`cache` {} reuses whole steps, and {} works with parts of steps or with stale results: "
        "leave one of them out; cfg=, data=, ulysses=, ring=, tensor=, shard= and expert= go "
        "with `cache`",
        word_of(cache.rule), bad));
}

// Exchanges of experts join all ranks of a group, so its ranks reuse the same steps.
void branch_problems(const Plan& plan, const StepCache& cache, Problems& problems) {
  if (!cache.apart || plan.cfg == 1 || plan.expert == 1) return;
  const comm::Mesh mesh = mesh_of(plan);
  for (int rank = 0; rank < plan.world(); ++rank)
    for (const int other : expert_group(plan, rank))
      if (mesh.coordinate(rank, "cfg") != mesh.coordinate(other, "cfg"))
        return problems.push_back(fmt::format(
            "`cache` {},branches=apart: expert={} shares experts between ranks of both branches "
            "of guidance (cfg=2), and these reuse different steps; use branches=together, or a "
            "plan whose experts stay within a branch",
            word_of(cache.rule), plan.expert));
}

void sample_problems(const Plan& plan, const nn::Geometry& geometry, const Workload& workload,
                     Problems& problems) {
  if (plan.data > workload.samples && plan.data > plan.expert)
    problems.push_back(
        fmt::format("data={}: the request has {} samples; use data={} or more samples", plan.data,
                    workload.samples, workload.samples));
  if (plan.shard_count() > workload.tokens())
    problems.push_back(fmt::format("{0}={1}: a sample has {2} tokens; use {0}={2} or less",
                                   plan.shards > 0 ? "shards" : "distrifusion", plan.shard_count(),
                                   workload.tokens()));
  if (plan.cfg > workload.branches)
    problems.push_back(
        "cfg=2 gives each branch of guidance ranks of its own, and this request has no guidance: "
        "leave out cfg=, or give `guidance` (`true_guidance` where the model embeds its own)");
  shard_problems(plan, geometry, problems);
  block_problems(plan, workload, problems);
  stage_problems(plan, geometry, workload, problems);
  for (std::string& problem : band_problems(plan, workload.lines))
    problems.push_back(std::move(problem));
  if (workload.step_cache) {
    cache_problems(plan, *workload.step_cache, problems);
    branch_problems(plan, *workload.step_cache, problems);
  }
  const bool whole = Partition(plan, workload).whole_samples();
  if (workload.rescales && !whole)
    problems.push_back(
        fmt::format("`guidance_rescale` and `cfg_normalization` need whole samples, and '{}' cuts "
                    "them into pieces: leave it out, "
                    "or choose a plan that does not cut samples",
                    to_string(plan)));
  if (workload.thresholds && !whole)
    problems.push_back(fmt::format(
        "this scheduler's 'thresholding' measures whole samples, and '{}' cuts them into pieces: "
        "choose a plan that does not cut samples",
        to_string(plan)));
}

void text_problems(const Plan& plan, Problems& problems) {
  if (plan.pipefusion > 1 || plan.patch_count() > 1)
    problems.push_back(
        "pipefusion= and patches= are for images; language models take expert=N or tensor=N");
  if (plan.shard_count() > 1)
    problems.push_back(
        "distrifusion= and shards= are for images; language models take expert=N or tensor=N");
  if (plan.shard > 1)
    problems.push_back("shard= is for images; language models take expert=N or tensor=N");
  if (plan.vae > 1 || plan.vae_apart)
    problems.push_back("vae= decodes images; leave it out of a language model's plan");
  if (plan.cfg * plan.ring * plan.ulysses > 1)
    problems.push_back(
        "cfg=, ring= and ulysses= are for images; language models take expert=N or tensor=N");
  if (plan.schedule != ExpertSchedule::sync || plan.conditional != KeptSlot::all ||
      plan.warmup > 1 || plan.cooldown > 0 || plan.sync_every > 0)
    problems.push_back(
        "nothing is stale between the passes of a language model; leave out schedule=, "
        "conditional=, warmup=, cooldown= and sync-every=");
  if (plan.data != plan.expert)
    problems.push_back(fmt::format(
        "data={}: prompts are not spread over ranks; give expert=N or tensor=N alone", plan.data));
}

}  // namespace

int most_slots(const nn::Geometry& geometry, const nn::SelectionRule* rule) {
  int most = 1;
  for (const nn::ExpertSite& site : geometry.experts) most = std::max(most, site.top_k);
  if (!rule) return most;
  return std::max(
      {most, rule->take, rule->method == nn::SelectionRule::Method::topk ? rule->k : 0});
}

bool shares_experts(const Plan& plan) {
  return plan.expert > 1 || plan.schedule != ExpertSchedule::sync ||
         plan.conditional != KeptSlot::all;
}

bool reads_experts(const Plan& plan) {
  return plan.ranks() == plan.expert && (plan.expert == 1 || plan.moe == MoeForm::bulk);
}

Problems problems(const Plan& plan, const nn::Geometry& geometry, const Workload& workload) {
  Problems problems = tessera::problems(plan, plan.ranks());
  if (!problems.empty()) return problems;
  for (const Problems& errors :
       {schedule_problems(plan, static_cast<int>(geometry.experts.size())),
        placement_problems(plan, geometry), tensor_problems(plan, geometry)})
    problems.insert(problems.end(), errors.begin(), errors.end());
  if (workload.text)
    text_problems(plan, problems);
  else
    sample_problems(plan, geometry, workload, problems);
  return problems;
}

void require_runnable(const Plan& plan, const nn::Geometry& geometry, const Workload& workload) {
  const Problems errors = problems(plan, geometry, workload);
  require(errors.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(errors, "; "));
}

nn::Portion portion_of(const Plan& plan, const nn::Geometry& geometry, int rank) {
  const comm::Mesh mesh = mesh_of(plan);
  const int stage = mesh.coordinate(rank, "pipefusion");
  nn::Portion portion{blocks_of_stages(plan, geometry.blocks).at(static_cast<size_t>(stage)),
                      stage == 0, stage + 1 == plan.pipefusion};
  portion.shard = {mesh.coordinate(rank, "tensor"), plan.tensor};
  if (plan.expert == 1 || geometry.experts.empty()) return portion;
  const int place = expert_place(plan, rank);
  for (const int owner : expert_owners(plan, geometry.experts.front().experts))
    portion.experts.push_back(owner == place);
  return portion;
}

nn::TokenView Setup::view(int patch) const {
  nn::TokenView own_view = partition.view(rank, patch);
  own_view.peers = peers.get();
  return own_view;
}

void Setup::begin_step(const nn::StepInfo& info) {
  attention->begin_step(info);
  experts->begin_step(info);
  if (second) second->begin_step(info);
  for (const auto& step_reuse : reuse) step_reuse->begin_step(info.index);
}

void Setup::begin_call(bool call_follows) {
  stages.begin(call_follows);
  if (gather) gather->begin(call_follows);
}

void Setup::begin_pass(int index, nn::TokenView pass) {
  partition = Partition::of_pass(plan, std::move(pass));
  if (peers) peers->hold(partition.pass().body, partition.run(rank).begin);
  begin_step({index, 0, true, true});
}

void Setup::finish() {
  attention->finish();
  experts->finish();
  if (second) second->finish();
}

bool Setup::go_on(const std::stop_token& stop) const {
  const bool stop_requested = stop.stop_requested();
  return !(world && world->size() > 1 ? comm::agreed(*world, 0, stop_requested, comm::kControl)
                                      : stop_requested);
}

bool Setup::may_record() const {
  return tensor::is_gpu(residence.device) && residence.fixed && plan.world() == 1 &&
         !plan.stale() && !shares_experts(plan) && !step_cache && !experts->log().watched();
}

std::vector<nn::MoeEvent> Setup::expert_events() const {
  std::vector<nn::MoeEvent> events = experts->log().events();
  if (second)
    events.insert(events.end(), second->log().events().begin(), second->log().events().end());
  return events;
}

std::vector<std::vector<int64_t>> Setup::expert_loads() const {
  if (partition.mesh().coordinate(rank, "tensor") > 0) return {};
  std::vector<std::vector<int64_t>> loads{experts->log().load()};
  if (second) loads.push_back(second->log().load());
  return loads;
}

int64_t Setup::peak_kept_bytes() const {
  // Both halves have rows under way at once.
  return experts->log().peak_kept_bytes() + (second ? second->log().peak_kept_bytes() : 0);
}

Setup::Setup(const Plan& requested_plan, const nn::Geometry& geometry, const Workload& workload,
             comm::Communicator* ranks, const Residence& weights)
    : plan(requested_plan),
      world(ranks),
      rank(ranks ? ranks->rank() : 0),
      partition(requested_plan, workload),
      residence(weights),
      blocks{0, geometry.blocks},
      step_cache(workload.step_cache) {
  require_runnable(plan, geometry, workload);
  require(plan.world() == (world ? world->size() : 1), ErrorCode::plan,
          "the plan '{}' needs {} ranks, there are {}", to_string(plan), plan.world(),
          world ? world->size() : 1);
  tensor_group = along("tensor");
  if (tensor_group) reduce = std::make_unique<OrderedReduce>(*tensor_group);
  weight_group = along("shard");
  if (weight_group) gather = std::make_unique<BlockGather>(*weight_group);
  share_blocks(geometry);
  share_tokens(geometry, workload);
  share_experts(geometry, workload);
  share_decisions(workload);
}

void Setup::share_decisions(const Workload& workload) {
  if (!step_cache || !step_cache->apart || workload.branches < 2) return;
  branches_in_turn = plan.cfg == 1;
  std::vector<std::string_view> others;
  for (const Axis& axis : partition.mesh().axes())
    if (axis.name != "cfg") others.push_back(axis.name);
  if (plan.cfg > 1) same_branch = partition.mesh().communicator(*world, others);
}

void Setup::share_blocks(const nn::Geometry& geometry) {
  std::vector<nn::Range> stage_blocks = blocks_of_stages(plan, geometry.blocks);
  blocks = stage_blocks[static_cast<size_t>(partition.mesh().coordinate(rank, "pipefusion"))];
  stages = Stages(geometry, std::move(stage_blocks), along("pipefusion"));
}

std::unique_ptr<comm::Communicator> Setup::along(std::string_view axis) const {
  const std::string_view axes[] = {axis};
  return partition.mesh().size(axis) > 1 ? partition.mesh().communicator(*world, axes) : nullptr;
}

void Setup::share_tokens(const nn::Geometry& geometry, const Workload& workload) {
  const bool text = workload.text.has_value();
  const std::string_view axis[] = {text ? "data" : "distrifusion"}, heads[] = {"ulysses"};
  const comm::Mesh& mesh = partition.mesh();
  branch_group = along("cfg");
  token_group = along(axis[0]);
  ring_group = along("ring");
  head_group = along("ulysses");
  constexpr std::string_view kRing[] = {"ring"};
  std::vector<std::vector<int>> holders;
  for (const int holder : mesh.group(rank, kRing)) holders.push_back(mesh.group(holder, heads));
  const auto inside =
      [&](const nn::Geometry& attention_geometry) -> std::unique_ptr<nn::Attention> {
    const bool keeps = plan.patch_count() > 1;
    if (!keeps && ring_group)
      return std::make_unique<Ring>(attention_geometry, *ring_group, holders, partition);
    if (!keeps)
      return std::make_unique<nn::LocalAttention>(attention_geometry, workload.int8_scores);
    std::unique_ptr<nn::KvAttention> kv_cache;
    if (ring_group)
      kv_cache = std::make_unique<QueryRing>(attention_geometry, *ring_group, holders, partition);
    else
      kv_cache =
          std::make_unique<nn::KvAttention>(attention_geometry, partition.whole_sequences(rank));
    cache = kv_cache.get();
    return kv_cache;
  };
  if (token_group || plan.shard_count() > 1) {
    auto kv_cache = std::make_unique<DisplacedKv>(
        geometry, partition.whole_sequences(rank), token_group.get(), mesh.group(rank, axis),
        partition,
        text ? std::vector<nn::TokenView>{} : partition.shards(rank, plan.shard_count()));
    cache = kv_cache.get();
    attention = std::move(kv_cache);
    if (text) peers = std::make_unique<GroupPeers>(*token_group);
  } else if (text) {
    auto kv_cache = std::make_unique<nn::KvAttention>(geometry, partition.whole_sequences(rank));
    cache = kv_cache.get();
    attention = std::move(kv_cache);
  } else if (head_group) {
    attention = std::make_unique<Ulysses>(geometry, *head_group, mesh.group(rank, heads), partition,
                                          inside);
  } else {
    attention = inside(geometry);
  }
  if (cache) cache->use_int8_scores(workload.int8_scores);
}

int64_t Setup::most_tokens(const Workload& workload) const {
  int64_t most = 0;
  if (workload.text) {
    for (const int64_t length : workload.text->lengths) most += length;
    return (most + plan.data - 1) / plan.data;
  }
  for (const int peer : parallel::expert_group(plan, rank))
    most = std::max(most, nn::token_count(partition.view(peer).body));
  return most;
}

void Setup::share_experts(const nn::Geometry& geometry, const Workload& workload) {
  require(!residence.experts || reads_experts(plan), ErrorCode::plan,
          "the plan cannot run: '{}' spreads a model whose experts are read while it runs, which "
          "one rank does, or those of expert=N with moe=bulk; choose such a plan, or give more "
          "memory",
          to_string(plan));
  std::shared_ptr<const nn::ExpertPolicy> chooses = std::make_shared<nn::VanillaPolicy>();
  if (workload.text) chooses = policy = std::make_shared<nn::SelectionPolicy>(workload.text->rule);
  if (workload.text && workload.text->capacity)
    chooses = std::make_shared<nn::CapacityPolicy>(policy, *workload.text->capacity);
  if (plan.expert > 1) expert_group = world->group(parallel::expert_group(plan, rank));
  std::vector<int> numbers = partition.sequences(rank);
  for (int& number : numbers) number = workload.number(number);
  if (workload.routing && shares_experts(plan) && !reduce)
    chooses = std::make_shared<nn::RecordedPolicy>(workload.routing, numbers);
  ScheduleHooks hooks{.kept_slot = [numbers](int sequence, int64_t id) {
    return token_number(static_cast<uint64_t>(numbers.at(static_cast<size_t>(sequence))),
                        static_cast<uint64_t>(id));
  }};
  if (plan.schedule == ExpertSchedule::staggered_batch) {
    two_batch_overlap = std::make_unique<TwoBatchOverlap>();
    hooks.travels = [this] { two_batch_overlap->hand_over(); };
  }
  const int steps = workload.text ? std::numeric_limits<int>::max() : workload.steps;
  const int count = geometry.experts.empty() ? 0 : geometry.experts.front().experts;
  const auto backend = [&]() -> std::unique_ptr<nn::ExpertBackend> {
    if (reduce) return std::make_unique<NarrowExperts>(*reduce);
    if (!shares_experts(plan)) return std::make_unique<nn::LocalBackend>(residence.experts);
    std::unique_ptr<ExpertCarrier> carrier;
    if (plan.moe == MoeForm::fused) {
      FusedSize size{expert_owners(plan, count), most_tokens(workload),
                     most_slots(geometry, workload.text ? &workload.text->rule : nullptr),
                     residence.for_gpu};
      if (plan.synchronous() && plan.conditional == KeptSlot::all)
        return std::make_unique<FusedExperts>(*expert_group, std::move(size));
      carrier = std::make_unique<FusedCarrier>(*expert_group, std::move(size));
    } else {
      carrier = std::make_unique<ExpertExchange>(expert_group.get(), expert_owners(plan, count),
                                                 residence.experts);
    }
    return std::make_unique<ScheduledExchange>(
        plan, Timetable(plan, static_cast<int>(geometry.experts.size()), steps), std::move(carrier),
        hooks);
  };
  experts = std::make_unique<nn::MoeLayers>(chooses, backend());
  if (two_batch_overlap) second = std::make_unique<nn::MoeLayers>(chooses, backend());
}

}  // namespace tessera::parallel
