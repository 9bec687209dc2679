#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/simulated/launch.h"
#include "load/meta_weights.h"
#include "whole/plans/every_network.h"

// cfg=2, ulysses=N and ring=N in every image and video network: the latents of a single rank after
// every step, with the computation and traffic.
namespace tessera {
namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, length = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(double(a[i]) - double(b[i]), 2);
    length += std::pow(double(b[i]), 2);
  }
  return std::sqrt(error / length);
}

class EveryNetwork : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kNetworks[GetParam()], dtype); }
  bool has_experts() const { return GetParam() == 0; }
};
INSTANTIATE_TEST_SUITE_P(SequenceParallel, EveryNetwork, testing::Range<size_t>(0, 6));

TEST_P(EveryNetwork, GivesTheBitsOfOneRankUnderCfgAndUlysses) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run({}).steps;
    EXPECT_NE(one, run({.guided = false}).steps) << run.name << " is guided";
    for (const char* plan :
         {"cfg=2", "ulysses=2", "ulysses=3", "ulysses=4", "ulysses=6", "ulysses=8", "cfg=2,data=2",
          "cfg=2,ulysses=3", "data=2,ulysses=2", "data=2,cfg=2,ulysses=2,order=ulysses+cfg"})
      EXPECT_EQ(run({plan}).steps, one) << run.name << ", " << plan;
    const auto alone = run({.guided = false}).steps;
    for (const char* plan : {"ulysses=5", "data=2,ulysses=4"})
      EXPECT_EQ(run({plan, false}).steps, alone) << run.name << ", " << plan;
  }
}

TEST_P(EveryNetwork, RescalesGuidanceOverBranchesOnTwoRanks) {
  const Subject run = subject(DType::f32);
  const auto one = run({"", true, 0.7f}).steps;
  EXPECT_NE(one, run({}).steps);
  for (const char* plan : {"cfg=2", "data=2,cfg=2"})
    EXPECT_EQ(run({plan, true, 0.7f}).steps, one) << run.name << ", " << plan;
}

TEST_P(EveryNetwork, GoesWithTensorAndStaleShards) {
  const Subject run = subject(DType::bf16);
  const auto two = run({"tensor=2"}).steps;
  for (const char* plan : {"cfg=2,tensor=2", "ulysses=3,tensor=2", "tensor=2,ulysses=2,data=2"})
    EXPECT_EQ(run({plan}).steps, two) << run.name << ", " << plan;
  if (!run.joint()) {
    EXPECT_EQ(run({"cfg=2,distrifusion=2"}).steps, run({"distrifusion=2"}).steps) << run.name;
  }
}

TEST_P(EveryNetwork, GivesThePredictionsOfOneRankUnderRing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run({}).steps;
    for (const char* plan : {"ring=2", "ring=3", "ring=8", "ring=2,ulysses=2", "ring=3,ulysses=2",
                             "cfg=2,ring=2", "data=2,ring=2,ulysses=2,order=ulysses+ring"}) {
      const auto many = run({plan}).steps;
      for (size_t s = 0; s < one.size(); ++s)
        EXPECT_LT(distance(many[s], one[s]), dtype == DType::f32 ? 1e-5 : 3e-2)
            << run.name << ", " << plan;
      EXPECT_EQ(run({plan}).steps, many) << run.name << ", " << plan << " again";
    }
  }
}

// The same run with other neighbours: traffic of ulysses= goes along the former ranks of cfg=.
TEST_P(EveryNetwork, TheOrderOfAxesSaysWhichRanksExchange) {
  const Subject run = subject(DType::bf16);
  const auto inside = run({"cfg=2,ulysses=2"}), outside = run({"cfg=2,ulysses=2,order=ulysses"});
  EXPECT_EQ(inside.steps, outside.steps) << run.name;
  const int64_t control = kSteps + 1;  // limit of rank 0's control words to each neighbour
  for (const auto& [ran, heads, branch] :
       {std::tuple{&inside, size_t{1}, size_t{2}}, {&outside, size_t{2}, size_t{1}}}) {
    const auto& sent = ran->sent[0].entries();
    int64_t exchanged = 0;
    for (const auto& [key, entry] : sent)
      if (key.first == "to heads" || key.first == "to tokens") exchanged += entry.bytes;
    EXPECT_GT(exchanged, 0);
    EXPECT_NEAR(double(ran->to[0][heads]), double(exchanged), double(control)) << run.name;
    EXPECT_NEAR(double(ran->to[0][branch]), double(sent.at({"guidance", -1}).bytes),
                double(control));
    EXPECT_LE(ran->to[0][3], control) << run.name;
  }
}

TEST_P(EveryNetwork, SendsItsPredictionOnceAStep) {
  const Subject run = subject(DType::bf16);
  for (const comm::Ledger& rank : run({"cfg=2"}).sent) {
    const auto& sent = rank.entries().at({"guidance", -1});
    EXPECT_EQ(sent.bytes, kSteps * kSamples * run.latent_bytes()) << run.name;
    EXPECT_EQ(sent.messages, kSteps);
  }
}

// 3 t (d - d_r) + d_r (p - t) elements a block, for t of p tokens and d_r of d channels of heads.
TEST_P(EveryNetwork, SendsTokensAndHeadsAsTheFormulaSays) {
  const Subject run = subject(DType::bf16);
  for (const int ranks : {2, 3, 8}) {
    const std::string text = "ulysses=" + std::to_string(ranks);
    const parallel::Partition cut(parse_plan(text), run.workload({}));
    const auto ran = run({text});
    for (int r = 0; r < ranks; ++r) {
      std::map<int, int64_t> expected;  // by block
      const int64_t p = nn::token_count(parallel::Partition(Plan{}, run.workload({})).view(0).body),
                    all_text = 2 * kSamples * run.workload({}).prefix;
      const nn::TokenView mine = cut.view(r);
      for (const nn::AttentionSite& site : run.geometry().attention) {
        const int64_t text_tokens = site.joint ? nn::token_count(mine.prefix) : 0;
        const int64_t t = nn::token_count(mine.body) + text_tokens;
        const int64_t asking = site.prefix_queries ? t : t - text_tokens;
        const int64_t all = p + (site.prefix_queries ? all_text : 0);
        const int64_t here = nn::split({0, site.heads}, ranks, r).size() * site.head_dim,
                      there = int64_t{site.heads} * site.head_dim - here;
        expected[site.block] += kSteps * 2 * ((2 * t + asking) * there + here * (all - asking));
      }
      for (const auto& [block, bytes] : expected) {
        const auto& sent = ran.sent[static_cast<size_t>(r)].entries();
        EXPECT_EQ(sent.at({"to heads", block}).bytes + sent.at({"to tokens", block}).bytes, bytes)
            << run.name << ", " << text << ", rank " << r << ", block " << block;
      }
    }
  }
}

TEST(SequenceParallel, ExpertsAreSpreadOverTheSameRanks) {
  using Schedules = std::vector<std::string>;
  for (const auto& [dtype, schedules] :
       {std::pair{DType::f32, Schedules{"", ",schedule=displaced,warmup=2"}},
        {DType::bf16,
         {"", ",schedule=interweaved", ",schedule=staggered-batch", ",conditional=random",
          ",schedule=interweaved,conditional=low,sync=deep"}}}) {
    const Subject run(kNetworks[0], dtype);
    for (const std::string& schedule : schedules) {
      const auto one = run({schedule.empty() ? "" : schedule.substr(1)}).steps;
      for (const char* plan : {"cfg=2,expert=2", "ulysses=2,expert=2", "ulysses=3,expert=3",
                               "cfg=2,ulysses=2,expert=4", "data=2,cfg=2,ulysses=2,expert=4",
                               "cfg=2,ulysses=4,expert=2,placement=strided"})
        EXPECT_EQ(run({plan + schedule}).steps, one) << plan << schedule;
    }
  }
}

// 128 tokens, two blocks of a budget.
TEST(SequenceParallel, AnAdaptiveScheduleChoosesTheSameBetweenItsBlocks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run(kNetworks[0], dtype, 16, 32);
    const std::string adaptive = "schedule=adaptive,budget=40";
    const auto one = run({adaptive}).steps;
    EXPECT_NE(one, run({}).steps) << "old results are used";
    for (const char* plan : {",ulysses=2", ",ulysses=2,expert=2", ",cfg=2,ulysses=2,expert=4",
                             ",data=2,ulysses=2,expert=2,order=ulysses+data"})
      EXPECT_EQ(run({adaptive + plan}).steps, one) << plan;
    if (dtype == DType::bf16) continue;  // a ring's rounding may choose others
    for (const char* plan : {",ring=2", ",ring=2,expert=2,cfg=2"})
      EXPECT_LT(distance(run({adaptive + plan}).steps.back(), one.back()), 1e-5) << plan;
  }
}

/// FLOPs of a pass of all ranks of a plan, without elements.
double work_of(const char* type, const char* config, const std::string& text, int64_t prefix) {
  const Plan plan = parse_plan(text);
  const auto spec = models::pipeline_of(type, {base::Json::parse(config), "config.json"});
  const auto network = spec.make(load::MetaWeights(), spec.whole(), DType::bf16);
  const nn::TokenLayout layout = spec.layout(64, 64, 0);
  nn::Conditioning conditioning = spec.example(1);
  for (auto& [name, x] : conditioning.tensors)
    x = Tensor::empty(x.shape().rank() == 3 ? x.shape().with(1, prefix) : x.shape(), x.dtype(),
                      tensor::Device::meta);
  const parallel::Workload work{.grid = layout.grid(), .prefix = prefix};
  std::vector<tensor::Scope> scopes(static_cast<size_t>(plan.world()));
  for (tensor::Scope& scope : scopes) scope.meter = std::make_shared<tensor::Meter>();
  comm::simulated::run(scopes, std::chrono::seconds(60), [&](comm::Communicator& world) {
    parallel::Setup setup(plan, network->geometry(), work, &world, {tensor::Device::meta});
    const auto flow = sample::rectified_flow(4);
    parallel::denoise(*network, conditioning, *flow,
                      {1, spec.guided_channels, spec.guided_channels},
                      setup.partition.cut(Tensor::empty({layout.tokens(), layout.token_channels()},
                                                        DType::f32, tensor::Device::meta),
                                          world.rank()),
                      [](int) { return Tensor(); }, setup, {});
  });
  double flops = 0;
  for (const tensor::Scope& scope : scopes) flops += scope.meter->total().flops;
  return flops;
}

// The published sizes at 512 x 512 pixels with all their text: no rank computes another's tokens.
TEST(SequenceParallel, TextIsComputedOnce) {
  const char* const sd3 =
      R"({"num_attention_heads": 24, "attention_head_dim": 64, "num_layers": 24, "in_channels": 16,
          "out_channels": 16, "caption_projection_dim": 1536, "joint_attention_dim": 4096,
          "pooled_projection_dim": 2048, "pos_embed_max_size": 192, "sample_size": 128,
          "patch_size": 2})";
  const char* const flux =
      R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 19,
          "num_single_layers": 38, "in_channels": 64, "joint_attention_dim": 4096,
          "pooled_projection_dim": 768, "axes_dims_rope": [16, 56, 56], "guidance_embeds": true})";
  for (const auto& [type, config] :
       {std::pair{"SD3Transformer2DModel", sd3}, {"FluxTransformer2DModel", flux}})
    for (const char* plan : {"ulysses=4", "ring=4", "ring=2,ulysses=2"}) {
      const double one = work_of(type, config, "", 333), four = work_of(type, config, plan, 333);
      EXPECT_LT(four, 1.02 * one) << type << ", " << plan;
      EXPECT_GE(four, one);
    }
}

}  // namespace
}  // namespace tessera
