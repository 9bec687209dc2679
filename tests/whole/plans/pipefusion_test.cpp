#include <gtest/gtest.h>

#include <cmath>

#include "load/meta_weights.h"
#include "sample/scheduler.h"
#include "whole/plans/every_network.h"

// patches=M and pipefusion=N in every image and video network: after every step, stages of ranks
// are bit-identical to patches on a single rank.
namespace tessera {
namespace {

constexpr int kStale = 5;  // steps
constexpr int kMore = 2;   // more blocks, so four stages have a block each

using Asked = Subject::Asked;

Asked asked(const std::string& plan, bool guided = true) {
  return {plan, guided, 0, sample::rectified_flow(kStale)};
}

std::string text_of(int patches, int warmup, const std::string& more = "") {
  return "patches=" + std::to_string(patches) + ",warmup=" + std::to_string(warmup) + more;
}

double most_apart(const Subject::Steps& a, const Subject::Steps& b) {
  double most = 0;
  for (size_t s = 0; s < a.size(); ++s)
    for (size_t i = 0; i < a[s].size(); ++i)
      most = std::max(most, std::abs(double(a[s][i]) - double(b[s][i])));
  return most;
}

class StagedNetwork : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kNetworks[GetParam()], dtype, 6, 10, kMore); }
};
INSTANTIATE_TEST_SUITE_P(PipeFusion, StagedNetwork, testing::Range<size_t>(0, 6));

TEST_P(StagedNetwork, OnePatchIsTheRunWithoutAPlan) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run(asked("")).steps;
    EXPECT_EQ(run(asked("patches=1")).steps, one) << run.name;
    for (const char* plan : {"patches=3,warmup=5", "patches=8,sync-every=1",
                             "patches=2,cut=bands,warmup=5", "patches=2,warmup=2,cooldown=3"})
      EXPECT_EQ(run(asked(plan)).steps, one) << run.name << ", nothing is stale under " << plan;
  }
}

TEST_P(StagedNetwork, PatchesAreStaleAfterTheWarmUp) {
  const Subject run = subject(DType::f32);
  const auto one = run(asked("")).steps;
  for (const char* plan : {"patches=2", "patches=3,warmup=2", "patches=8", "patches=3,cut=bands"}) {
    const auto stale = run(asked(plan)).steps;
    const auto fresh = static_cast<size_t>(parse_plan(plan).warmup);
    for (size_t s = 0; s < fresh; ++s) EXPECT_EQ(stale[s], one[s]) << run.name << ", " << plan;
    EXPECT_GT(most_apart(stale, one), 1e-4) << run.name << ", " << plan;
  }
}

/// A run without movement: old keys and values equal those of the step.
class Still : public sample::Sampler {
 public:
  int steps() const override { return kStale; }
  float timestep(int) const override { return 400; }
  bool needs_noise(int) const override { return false; }
  Tensor step(int, const Tensor&, const Tensor& x, const Tensor&, sample::History&) const override {
    return x;
  }
};

TEST_P(StagedNetwork, PatchesOfALatentThatDoesNotMoveAreFresh) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto still = std::make_shared<Still>();
    const auto one = run({"", true, 0, still}).predictions;
    for (const char* plan : {"patches=3", "patches=5,cut=bands", "pipefusion=3,patches=8"}) {
      if (run.workload(asked("")).grid[1] < 5 &&
          std::string(plan).find("bands") != std::string::npos)
        continue;
      EXPECT_EQ(run({plan, true, 0, still}).predictions, one) << run.name << ", " << plan;
    }
  }
}

TEST_P(StagedNetwork, StagesGiveTheBitsOfPatchesOnOneRank) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    for (const int warmup : {1, 2})
      for (const int patches : {1, 2, 3, 5, 8}) {
        const std::string text = text_of(patches, warmup);
        const auto one = run(asked(text));
        for (const int stages : {2, 3, 4}) {
          const auto many = run(asked("pipefusion=" + std::to_string(stages) + "," + text));
          EXPECT_EQ(many.steps, one.steps) << run.name << ", " << stages << " stages, " << text;
          EXPECT_EQ(many.predictions, one.predictions) << run.name << ", " << text;
        }
      }
  }
}

TEST_P(StagedNetwork, StagesMayBeUnevenAndPatchesBands) {
  const Subject run = subject(DType::bf16);
  const int blocks = run.geometry().blocks;
  const std::string uneven = "pipefusion=3,stages=1+" + std::to_string(blocks - 2) + "+1";
  for (const std::string& rest :
       {text_of(3, 1, ",cut=bands"), text_of(4, 2, ",sync-every=2"), text_of(15, 1)})
    EXPECT_EQ(run(asked(uneven + "," + rest)).steps, run(asked(rest)).steps)
        << run.name << ", " << rest;
  const std::string each = "pipefusion=" + std::to_string(blocks);
  EXPECT_EQ(run(asked(each + ",patches=2")).steps, run(asked("patches=2")).steps) << run.name;
  EXPECT_EQ(run(asked(each, false)).steps,
            run(asked("patches=" + std::to_string(blocks), false)).steps)
      << run.name << ": as many patches as stages";
}

TEST_P(StagedNetwork, GoesWithCfgDataUlyssesAndTensor) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run(asked("patches=3")).steps;
    for (const char* plan :
         {"cfg=2,patches=3", "ulysses=2,patches=3", "ulysses=3,data=2,patches=3",
          "cfg=2,pipefusion=2,patches=3", "pipefusion=2,ulysses=2,patches=3",
          "pipefusion=3,ulysses=2,patches=3,order=ulysses+pipefusion",
          "data=2,pipefusion=2,patches=3", "data=2,cfg=2,pipefusion=2,ulysses=3,patches=3",
          "pipefusion=2,ulysses=8,patches=3"})
      EXPECT_EQ(run(asked(plan)).steps, one) << run.name << ", " << plan;
  }
  const Subject run = subject(DType::bf16);
  const auto bands = run(asked("patches=3,cut=bands")).steps;
  EXPECT_EQ(run(asked("pipefusion=2,ulysses=3,patches=3,cut=bands")).steps, bands) << run.name;
  EXPECT_EQ(run(asked("pipefusion=2,tensor=2,patches=3")).steps,
            run(asked("tensor=2,patches=3")).steps)
      << run.name;
  EXPECT_EQ(run(asked("pipefusion=2,patches=1,ring=2")).steps, run(asked("ring=2")).steps)
      << run.name << ": with one patch nothing is stale";
}

// 2 S (T + text) keys of d channels for each attention of a stage, in bf16: no more and no less.
TEST_P(StagedNetwork, KeepsKeysAndValuesAsTheFormulaSays) {
  const Subject run = subject(DType::bf16);
  for (const char* text :
       {"patches=2", "pipefusion=3,patches=8", "pipefusion=2,ulysses=3,patches=2",
        "pipefusion=2,patches=1", "cfg=2,pipefusion=2,patches=3"}) {
    const Plan plan = parse_plan(text);
    const auto kept = run(asked(text)).kept;
    const parallel::Workload work = run.workload(asked(text));
    const auto stages = parallel::blocks_of_stages(plan, run.geometry().blocks);
    const parallel::Partition partition(plan, work);
    for (int r = 0; r < plan.world(); ++r) {
      const auto& mesh = partition.mesh();
      const nn::Range mine = stages[static_cast<size_t>(mesh.coordinate(r, "pipefusion"))];
      int64_t expected = 0;
      for (const nn::AttentionSite& site : run.geometry().attention)
        if (plan.patch_count() > 1 && site.block >= mine.begin && site.block < mine.end)
          expected +=
              2 * std::ssize(partition.sequences(r)) *
              (work.tokens() + (site.joint ? work.prefix : 0)) *
              nn::split({0, site.kv_heads}, plan.ulysses, mesh.coordinate(r, "ulysses")).size() *
              site.head_dim * 2;
      EXPECT_EQ(kept[static_cast<size_t>(r)], expected)
          << run.name << ", " << text << ", rank " << r;
    }
  }
}

// In a stale step a patch reads its own tokens and earlier patches fresh, and later patches from
// the previous step; text is as old as the first patch.
TEST_P(StagedNetwork, SaysHowOldTheKeysAreThatItReads) {
  const Subject run = subject(DType::f32);
  for (const char* text : {"patches=3", "patches=8,warmup=2", "patches=2,warmup=5"}) {
    const Plan plan = parse_plan(text);
    const parallel::Workload work = run.workload(asked(text));
    const parallel::Partition partition(plan, work);
    std::vector<int64_t> ages(2);
    for (const nn::AttentionSite& site : run.geometry().attention) {
      const int64_t all = work.tokens() + (site.joint ? work.prefix : 0);
      const int64_t stale = kStale - plan.warmup;
      int64_t behind = 0, before = 0;
      for (int p = 0; p < plan.patch_count(); ++p) {
        before += nn::token_count(partition.view(0, p).body) / (2 * kSamples);
        behind += work.tokens() - before;
      }
      ages[1] += 2 * kSamples * stale * behind;
      ages[0] += 2 * kSamples * (plan.warmup * all + stale * (plan.patch_count() * all - behind));
    }
    if (ages[1] == 0) ages.pop_back();
    EXPECT_EQ(run(asked(text)).ages[0], ages) << run.name << ", " << text;
  }
}

// The streams of all tokens pass each border once a step, skips go straight to their reader, and
// latents come back but for the last step: bytes do not depend on the number of patches.
TEST_P(StagedNetwork, SendsBetweenStagesWhatTheFormulaSays) {
  const Subject run = subject(DType::bf16);
  for (const auto& [stages, patches] : {std::pair{2, 3}, {3, 8}, {4, 1}}) {
    const std::string text = "pipefusion=" + std::to_string(stages) + "," + text_of(patches, 2);
    const parallel::Workload work = run.workload(asked(text));
    const auto ran = run(asked(text));
    const auto blocks = parallel::blocks_of_stages(parse_plan(text), run.geometry().blocks);
    const int64_t calls = 2 + (kStale - 2) * patches;
    const nn::AttentionSite& site = run.geometry().attention[0];
    const int64_t sequences = 2 * kSamples, width = int64_t{site.heads} * site.head_dim * 2;
    for (int s = 0; s < stages; ++s) {
      const auto& sent = ran.sent[static_cast<size_t>(s)].entries();
      std::map<std::pair<std::string, int>, std::pair<int64_t, int64_t>> expected, found;
      if (s + 1 < stages)
        expected[{"hidden", int(blocks[size_t(s) + 1].begin)}] = {
            calls, kStale * sequences * (work.tokens() + work.prefix) * width};
      else
        expected[{"latent", -1}] = {calls - patches, (kStale - 1) * kSamples * run.latent_bytes()};
      const auto& skips = run.geometry().skip_from;
      for (int reader = 0; reader < std::ssize(skips); ++reader) {
        const auto holds = [&](int block) {
          return block >= blocks[size_t(s)].begin && block < blocks[size_t(s)].end;
        };
        if (skips[size_t(reader)] >= 0 && holds(skips[size_t(reader)]) && !holds(reader))
          expected[{"skip", skips[size_t(reader)]}] = {calls,
                                                       kStale * sequences * work.tokens() * width};
      }
      for (const auto& [key, entry] : sent)
        if (key.first != "go" && entry.messages > 0) found[key] = {entry.messages, entry.bytes};
      EXPECT_EQ(found, expected) << run.name << ", " << text << ", stage " << s;
    }
  }
}

// Each weight is on a single stage, except modulation shared by all blocks.
TEST_P(StagedNetwork, AStageBuildsItsBlocksAlone) {
  const Subject run = subject(DType::bf16);
  const auto parameters = [&](const nn::Portion& portion) {
    const load::MetaWeights weights;
    run.spec().make(weights, portion, DType::bf16);
    return weights.parameters();
  };
  const int64_t whole = parameters(run.spec().whole());
  const nn::Portion shared{{0, 0}, false, false};
  for (const int stages : {2, 4}) {
    const Plan plan = parse_plan("pipefusion=" + std::to_string(stages));
    int64_t sum = 0;
    for (int r = 0; r < stages; ++r)
      sum += parameters(parallel::portion_of(plan, run.geometry(), r));
    EXPECT_EQ(sum, whole + (stages - 1) * parameters(shared)) << run.name;
  }
}

TEST(PipeFusion, ExpertsAreSpreadOverTheRanksOfAStage) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run(kNetworks[0], dtype, 6, 10, kMore);
    for (const char* schedule :
         {"", ",schedule=interweaved", ",schedule=displaced,warmup=2", ",conditional=random",
          ",schedule=interweaved,conditional=low,sync=deep", ",schedule=adaptive,budget=40"}) {
      const auto one = run(asked(std::string("patches=3") + schedule)).steps;
      for (const char* plan :
           {"pipefusion=2,patches=3", "cfg=2,expert=2,patches=3",
            "cfg=2,pipefusion=2,expert=2,patches=3", "data=2,pipefusion=3,expert=2,patches=3"})
        EXPECT_EQ(run(asked(std::string(plan) + schedule)).steps, one) << plan << schedule;
      if (std::string(schedule).find("adaptive") != std::string::npos) continue;
      for (const char* plan : {"pipefusion=2,ulysses=2,expert=2,patches=3",
                               "cfg=2,pipefusion=2,ulysses=2,expert=4,patches=3"})
        EXPECT_EQ(run(asked(std::string(plan) + schedule)).steps, one) << plan << schedule;
    }
  }
}

// 256 tokens in patches of 128 and shards of 64.
TEST(PipeFusion, AnAdaptiveScheduleChoosesTheSameBetweenItsBlocks) {
  const Subject run(kNetworks[0], DType::bf16, 32, 32, kMore);
  const std::string adaptive = "patches=2,schedule=adaptive,budget=40";
  const auto one = run(asked(adaptive)).steps;
  for (const char* plan :
       {",ulysses=2,expert=2", ",pipefusion=2,ulysses=2", ",cfg=2,pipefusion=2,ulysses=2,expert=4"})
    EXPECT_EQ(run(asked(adaptive + plan)).steps, one) << plan;
  EXPECT_THROW(run(asked("patches=2,ulysses=3,schedule=adaptive")), Error);
}

// Each patch has its own history, and its own part of the full noise.
TEST(PipeFusion, EverySchedulerStepsPatchByPatch) {
  const Subject run(kNetworks[1], DType::f32, 6, 10, kMore);
  for (const sample::Scheduler& scheduler : sample::schedulers()) {
    const std::shared_ptr<const sample::Sampler> sampler =
        sample::make_sampler(scheduler.name, base::Json::object(), "scheduler_config.json",
                             {.steps = 6, .tokens = run.workload(asked("")).tokens()});
    const auto steps = [&](const std::string& plan) { return run({plan, true, 0, sampler}).steps; };
    EXPECT_EQ(steps("patches=3,warmup=12"), steps("")) << scheduler.name;
    EXPECT_EQ(steps("pipefusion=3,patches=5,ulysses=2"), steps("patches=5")) << scheduler.name;
    EXPECT_NE(steps("patches=5"), steps("")) << scheduler.name;
  }
}

TEST(PipeFusion, LearnedVariancesStepPatchByPatch) {
  const Subject run(kNetworks[0], DType::f32, 6, 10, kMore);
  const std::shared_ptr<const sample::Sampler> ddpm = sample::ddpm_learned_range(4);
  const auto steps = [&](const std::string& plan) {
    return run({plan, false, 0, ddpm, true}).steps;
  };
  EXPECT_EQ(steps("patches=3,warmup=4"), steps(""));
  EXPECT_EQ(steps("pipefusion=2,patches=3"), steps("patches=3"));
}

}  // namespace
}  // namespace tessera
