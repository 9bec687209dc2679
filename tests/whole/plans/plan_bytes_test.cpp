#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "parallel/stages.h"
#include "whole/plans/every_network.h"

// The traffic of each rank under forty-one plans, by operation and layer, against the formulas of
// docs/plans.md.
namespace tessera {
namespace {

constexpr int kRun = 4;         // steps
constexpr int64_t kWidth = 2;   // bytes of an element
constexpr int kMoreBlocks = 2;  // more blocks, for four stages

const char* const kPlans[] = {"data=2",
                              "cfg=2",
                              "ulysses=2",
                              "ulysses=3",
                              "ulysses=4",
                              "ulysses=8",
                              "ring=2",
                              "ring=3",
                              "ring=5",
                              "distrifusion=2",
                              "distrifusion=3",
                              "distrifusion=2,shards=6,warmup=2",
                              "tensor=2",
                              "tensor=3",
                              "pipefusion=2",
                              "pipefusion=2,patches=1",
                              "pipefusion=2,patches=4",
                              "pipefusion=2,patches=32",
                              "pipefusion=3,patches=8",
                              "pipefusion=4,patches=4,warmup=2",
                              "pipefusion=4,patches=16",
                              "pipefusion=2,stages=1+",
                              "data=2,cfg=2",
                              "data=2,ulysses=2",
                              "cfg=2,ulysses=3",
                              "cfg=2,ring=2",
                              "data=2,ring=3",
                              "ring=2,ulysses=2",
                              "ring=2,ulysses=3",
                              "ring=3,ulysses=2",
                              "cfg=2,ring=2,ulysses=2",
                              "cfg=2,ulysses=2,order=ulysses",
                              "cfg=2,distrifusion=2",
                              "cfg=2,tensor=2",
                              "cfg=2,pipefusion=2,patches=4",
                              "data=2,pipefusion=2,patches=5",
                              "pipefusion=2,ulysses=2,patches=4",
                              "pipefusion=2,ulysses=3,patches=8",
                              "cfg=2,pipefusion=2,ulysses=2,patches=4",
                              "pipefusion=2,ring=2,patches=1",
                              "cfg=2,pipefusion=2,ring=2,patches=1"};
static_assert(std::size(kPlans) == 41);

struct Sent {
  int64_t messages = 0, bytes = 0;
  bool operator==(const Sent&) const = default;
};
using ByLayer = std::map<std::pair<std::string, int>, Sent>;

/// The formulas for a rank.
class Formula {
 public:
  Formula(const Subject& run, const Plan& plan, const parallel::Workload& work, int rank)
      : run_(run),
        plan_(plan),
        work_(work),
        partition_(plan, work),
        rank_(rank),
        stages_(parallel::blocks_of_stages(plan, run.geometry().blocks)),
        mine_(stages_[static_cast<size_t>(along("pipefusion"))]) {}

  ByLayer of_run() {
    for (int step = 0; step < kRun; ++step) {
      const bool goes_on = step + 1 < kRun;
      const int calls = plan_.calls(step, kRun);
      for (int p = 0; p < calls; ++p) add_call(calls == 1 ? -1 : p, goes_on);
    }
    std::erase_if(sent_, [](const auto& entry) { return entry.second.messages == 0; });
    return sent_;
  }

 private:
  int along(const char* axis) const { return partition_.mesh().coordinate(rank_, axis); }
  static int64_t tokens(const nn::TokenView& view, bool text) {
    return nn::token_count(view.body) + (text ? nn::token_count(view.prefix) : 0);
  }
  void add(const char* operation, int layer, int64_t messages, int64_t bytes) {
    Sent& sent = sent_[{operation, layer}];
    sent.messages += messages;
    sent.bytes += bytes;
  }
  // The view of the ranks along `ulysses` at a place of the ring.
  nn::TokenView place_of_ring(int place, int patch) const {
    std::vector<int> ranks;
    const comm::Mesh& mesh = partition_.mesh();
    for (int r = 0; r < mesh.size(); ++r) {
      bool same = mesh.coordinate(r, "ring") == place;
      for (const char* axis : {"data", "cfg", "pipefusion", "distrifusion", "tensor"})
        same = same && mesh.coordinate(r, axis) == along(axis);
      if (same) ranks.push_back(r);
    }
    return partition_.view(ranks, patch);
  }
  void add_call(int patch, bool goes_on);
  void add_attention(const nn::AttentionSite& site, int patch, bool goes_on);

  const Subject& run_;
  const Plan& plan_;
  const parallel::Workload& work_;
  const parallel::Partition partition_;
  const int rank_;
  const std::vector<nn::Range> stages_;
  const nn::Range mine_;
  ByLayer sent_;
};

void Formula::add_attention(const nn::AttentionSite& site, int patch, bool goes_on) {
  const int U = plan_.ulysses, R = plan_.ring, N = plan_.distrifusion;
  const int64_t d = int64_t{site.heads} * site.head_dim,
                d_r = nn::split({0, site.heads}, U, along("ulysses")).size() * site.head_dim;
  const nn::TokenView own = partition_.view(rank_, patch),
                      place = place_of_ring(along("ring"), patch);
  const int64_t t = tokens(own, site.joint);
  const int64_t asking = tokens(own, site.joint && site.prefix_queries),
                all_asking = tokens(place, site.joint && site.prefix_queries);
  if (U > 1) {
    add("to heads", site.block, U - 1, kWidth * (2 * t + asking) * (d - d_r));
    add("to tokens", site.block, U - 1, kWidth * d_r * (all_asking - asking));
  }
  if (R > 1) {
    int64_t all = 0;
    for (int place_there = 0; place_there < R; ++place_there)
      all += tokens(place_of_ring(place_there, patch), site.joint);
    const int64_t next = tokens(place_of_ring((along("ring") + 1) % R, patch), site.joint);
    add("ring", site.block, R - 1, 2 * kWidth * d_r * (all - next));
  }
  if (N > 1 && goes_on) add("keys and values", site.block, N - 1, (N - 1) * 2 * t * d * kWidth);
}

void Formula::add_call(int patch, bool goes_on) {
  const nn::TokenView own = partition_.view(rank_, patch);
  const nn::AttentionSite& first = run_.geometry().attention.front();
  const int64_t D = int64_t{first.heads} * first.head_dim, N = plan_.tensor;
  const bool last = along("pipefusion") + 1 == plan_.pipefusion;
  for (const nn::AttentionSite& site : run_.geometry().attention)
    if (site.block >= mine_.begin && site.block < mine_.end) add_attention(site, patch, goes_on);
  if (N > 1) {  // a sum behind each attention, MLP and MoE layer
    const int64_t sums = (run_.spec().text_inputs.empty() ? 2 : 3) * mine_.size();
    const int64_t rows = tokens(own, false),
                  finished = nn::split({0, rows}, plan_.tensor, along("tensor")).size(),
                  chunks = std::clamp<int64_t>(rows / 128, 1, 4);
    add("reduce", -1, sums * chunks * 2 * (N - 1),
        sums * ((rows - finished) * D * 4 + (N - 1) * finished * D * kWidth));
  }
  const auto stage_with = [&](int64_t block) {
    for (size_t s = 0; s < stages_.size(); ++s)
      if (block >= stages_[s].begin && block < stages_[s].end) return s;
    return stages_.size();
  };
  const auto here = static_cast<size_t>(along("pipefusion"));
  const auto& skips = run_.geometry().skip_from;
  for (size_t reader = 0; reader < skips.size(); ++reader)
    if (skips[reader] >= 0 && stage_with(skips[reader]) == here &&
        stage_with(static_cast<int64_t>(reader)) != here)
      add("skip", skips[reader], 1, tokens(own, false) * D * kWidth);
  if (!last)
    add("hidden", static_cast<int>(stages_[here + 1].begin), 1,
        tokens(own, first.joint) * D * kWidth);
  if (!last) return;
  const int64_t sequences = std::ssize(own.sequences), samples = sequences / (2 / plan_.cfg);
  const int64_t each = run_.latent_bytes() / work_.tokens(), t = tokens(own, false) / sequences;
  if (plan_.cfg > 1) add("guidance", -1, 1, samples * t * each);
  if (plan_.pipefusion > 1 && goes_on) add("latent", -1, 1, samples * t * each);
}

class PlanBytes : public testing::TestWithParam<size_t> {
 protected:
  const Subject run{kNetworks[GetParam()], DType::bf16, 16, 16, kMoreBlocks};
  Subject::Asked asked(const std::string& plan) const {
    return {.plan = plan, .sampler = sample::rectified_flow(kRun)};
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, PlanBytes, testing::Range<size_t>(0, 6));

TEST_P(PlanBytes, EachRankSendsWhatTheFormulasSay) {
  int ran = 0;
  for (std::string text : kPlans) {
    if (text.ends_with('+')) text += std::to_string(run.geometry().blocks - 1);
    const Plan plan = parse_plan(text);
    const parallel::Workload work = run.workload(asked(text));
    const bool streams = run.joint() && plan.tensor > 1;  // text is summed separately
    if (streams || !parallel::problems(plan, run.geometry(), work).empty()) continue;
    const auto found = run(asked(text));
    for (int r = 0; r < plan.world(); ++r) {
      ByLayer sent;
      int64_t bytes = 0;
      for (const auto& [key, entry] : found.sent[static_cast<size_t>(r)].entries()) {
        bytes += entry.bytes;
        if (key.first != "go" && entry.messages > 0) sent[key] = {entry.messages, entry.bytes};
      }
      EXPECT_EQ(sent, Formula(run, plan, work, r).of_run())
          << run.name << ", " << text << ", rank " << r;
      const auto& to = found.to[static_cast<size_t>(r)];
      const int64_t link = std::accumulate(to.begin(), to.end(), int64_t{0});
      EXPECT_NEAR(double(link), double(bytes), 0.02 * double(bytes)) << text << ", rank " << r;
    }
    ++ran;
  }
  EXPECT_GE(ran, run.joint() ? 38 : 41) << run.name;
}

TEST_P(PlanBytes, ManyPatchesSendWhatFewDo) {
  for (const char* plan :
       {"pipefusion=2", "pipefusion=4", "cfg=2,pipefusion=2", "pipefusion=2,ulysses=2"}) {
    std::map<std::pair<std::string, int>, int64_t> few, many;
    for (const auto& [patches, sum] : {std::pair{",patches=4", &few}, {",patches=32", &many}}) {
      const auto found = run(asked(std::string(plan) + patches));
      for (const comm::Ledger& rank : found.sent)
        for (const auto& [key, entry] : rank.entries())
          if (key.first != "go") (*sum)[key] += entry.bytes;
    }
    EXPECT_EQ(few, many) << run.name << ", " << plan;
    EXPECT_FALSE(few.empty());
  }
}

}  // namespace
}  // namespace tessera
