#include <gtest/gtest.h>

#include "device/leg.h"
#include "device/on_gpu.h"
#include "models/token_config.h"
#include "models/token_configs.h"
#include "nn/moe/sequence_usage.h"
#include "parallel/decode.h"
#include "tensor/recording.h"

namespace tessera::device {
namespace {

struct SplitExperts : models::NamedNoise {
  bool has(const std::string&) const override { return false; }
};

// Prompts of unequal lengths, decoded with a cache and with fewer experts. Words depend on tiny
// differences of bf16: under other kernels only f32 gives equal words.
std::vector<std::vector<int32_t>> decoded(Device device, const base::Json& config, bool causal,
                                          const std::string& select) {
  const auto spec = models::language_model_of({config, "c"});
  const auto model = spec.make(WeightsOn(device, std::make_shared<SplitExperts>()), spec.whole(),
                               bitwise() ? DType::bf16 : DType::f32, 4);
  sample::DecodingPolicy policy;
  policy.block = 4;
  policy.cache.kind = causal ? KvCache::block : KvCache::dual;
  const std::vector<sample::TokenPrompt> prompts{{{3, 1, 4}, 8}, {{1, 5, 9, 2, 6}, 8}};
  nn::SequenceUsage usage;
  parallel::Setup setup(
      {}, model->geometry(),
      {.text = {{sample::sequence_lengths(prompts, policy, causal), nn::parse_selection(select)}}});
  setup.policy->restrict_to({{0, nn::kAllTokens}, {1, nn::kAllTokens}});
  setup.experts->log().watch([&](const nn::MoeWork& work) { usage.see(work); });
  const auto out = parallel::decode(*model, prompts, policy, {39, {}}, setup);
  std::vector<std::vector<int32_t>> ids;
  for (const auto& one : out) ids.push_back(one.generated);
  ids.push_back({static_cast<int32_t>(usage.experts_read())});
  return ids;
}

void expect_equal(const base::Json& config, bool causal, const std::string& select) {
  const auto want = decoded(Device::cpu, config, causal, select);
  const Gpu gpu;
  EXPECT_EQ(decoded(Device::cuda, config, causal, select), want);
  gpu.expect_kernels(100);
}

TEST(LanguageOnGpu, LladaMoe) { expect_equal(models::llada_moe_config(), false, "vanilla"); }

TEST(LanguageOnGpu, Llada2RoutesInGroups) {
  expect_equal(models::llada2_config(), true, "vanilla");
}

// Logits stay on the device for the likeliest token; they are fetched for draws and for changed
// logits.
TEST(LanguageOnGpu, LooksAtLogitsByEveryRule) {
  const auto choose = [](const sample::DecodingPolicy& policy, const Tensor& logits) {
    const sample::OpenLogits in{{4, 5, 7}, {9, 9, 3}, logits, 9, 0, {1, 1, 2}};
    const auto rule = sample::unmasking_policy(policy);
    rule->begin_block(2);
    std::vector<double> said;
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& p : rule->choose(in))
        said.insert(said.end(), {double(p.position), double(p.token), p.confidence});
    return said;
  };
  std::vector<sample::DecodingPolicy> policies(4);
  policies[1].temperature = 0.7;
  policies[2].repetition_penalty = 1.5;
  sample::read_decode("credit:0.3", policies[3]);
  const Tensor logits = models::NamedNoise().get("logits", {3, 40});
  for (const auto& policy : policies) {
    const auto want = choose(policy, logits);
    const Gpu gpu;
    const auto got = choose(policy, logits.to(Device::cuda));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
  }
}

TEST(LanguageOnGpu, ChoosesFewerExperts) {
  for (const char* rule : {"des-vote:0.5", "des-seq:1", "mc:0.4,0.25,0.25"})
    expect_equal(models::llada_moe_config(), false, rule);
}

// Work that needs the host cannot be recorded.
TEST(LanguageOnGpu, NoChoiceWaitsForTheHost) {
  const models::NamedNoise noise;
  const Tensor tokens = noise.get("tokens", {21, 32}), logits = noise.get("logits", {21, 16});
  const ops::RoutingOptions routers[] = {
      {.top_k = 4},
      {.score = ops::RoutingOptions::Score::sigmoid, .top_k = 4, .groups = 4, .top_groups = 2}};
  const nn::TokenView view{-1, {0, 1, 2}, {}, {{0, {0, 9}}, {1, {0, 5}}, {2, {0, 7}}}, {9, 5, 7}};
  for (const char* rule : {"topk:2", "des-seq:1", "des-vote:0.3", "des-max:0.5,weights=A",
                           "des-norm4:0.5,k=6", "des-peak:0.2", "naee:0.4", "mc:0.4,0.25,0.25"})
    for (const ops::RoutingOptions& router : routers) {
      nn::SelectionPolicy policy(nn::parse_selection(rule));
      policy.restrict_to({{0, nn::kAllTokens}, {2, nn::kAllTokens}});
      const nn::MoeCall call{0, {}, view};
      const ops::Routing want = policy.choose(call, tokens, logits, router);
      const Gpu gpu;
      const Tensor seen = tokens.to(Device::cuda), scores = logits.to(Device::cuda);
      ops::Routing got = policy.choose(call, seen, scores, router);
      const auto recording =
          tensor::Recording::attempt([&] { got = policy.choose(call, seen, scores, router); });
      ASSERT_NE(recording, nullptr) << rule;
      recording->replay();
      EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints()) << rule;
      EXPECT_LT(golden::max_error(got.weights.to_floats(), want.weights.to_floats()), 1e-6) << rule;
    }
}

}  // namespace
}  // namespace tessera::device
