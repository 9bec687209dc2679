#include <gtest/gtest.h>

#include "device/leg.h"
#include "device/on_gpu.h"
#include "models/token_config.h"
#include "models/token_configs.h"
#include "nn/kv_attention.h"
#include "nn/moe/selected_experts.h"
#include "sample/decode.h"

namespace tessera::device {
namespace {

struct SplitExperts : models::NamedNoise {
  bool has(const std::string&) const override { return false; }
};

// Prompts of unequal lengths, decoded with a cache and with fewer experts. Words follow from tiny
// differences of bf16: only f32 has the same ones where other kernels compute.
std::vector<std::vector<int32_t>> decoded(Device device, const base::Json& config, bool causal,
                                          const std::string& select) {
  const auto recipe = models::make_token_recipe(config, "c");
  const auto model =
      recipe->make(WeightsOn(device, std::make_shared<SplitExperts>()),
                   {{0, recipe->blocks()}, true, true}, bitwise() ? DType::bf16 : DType::f32, 4);
  nn::KvAttention attention(model->geometry(), model->dtype());
  nn::SelectedExperts experts(nn::parse_selection(select));
  experts.policy->restrict_to({0, 1});
  sample::DecodingPolicy policy;
  policy.block = 4;
  policy.cache =
      causal ? sample::DecodingPolicy::Cache::block : sample::DecodingPolicy::Cache::dual;
  const auto out = sample::decode(*model, {{{3, 1, 4}, 8}, {{1, 5, 9, 2, 6}, 8}}, policy, {39, {}},
                                  causal, {attention, experts.layers}, {});
  std::vector<std::vector<int32_t>> ids;
  for (const auto& one : out) ids.push_back(one.generated);
  ids.push_back({static_cast<int32_t>(experts.usage.experts_read())});
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

TEST(LanguageOnGpu, ChoosesFewerExpertsOnTheHost) {
  expect_equal(models::llada_moe_config(), false, "des-vote:0.5");
}

}  // namespace
}  // namespace tessera::device
