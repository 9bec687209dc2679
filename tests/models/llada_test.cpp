#include "models/llada.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "models/named_noise.h"
#include "models/registry.h"
#include "models/token_config.h"
#include "models/token_configs.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "ops/elementwise.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

std::unique_ptr<nn::TokenModel> make(const base::Json& config, const nn::Weights& weights,
                                     DType dtype = DType::f32) {
  const auto spec = language_model_of({config, "c"});
  return spec.make(weights, {{0, spec.blocks}, true, true}, dtype, 4);
}

Tensor run(const nn::TokenModel& model, const std::vector<int32_t>& ids,
           const nn::TokenView& view) {
  nn::KvAttention attention(model.geometry(), nn::sequences_of_lengths(view.lengths));
  nn::MoeLayers experts;
  const auto placement = model.place(view);
  nn::Hidden hidden = model.embed(ids, view);
  for (int b = 0; b < model.geometry().blocks; ++b)
    model.block(b, {}, *placement, hidden, {attention, experts});
  return model.logits(hidden, view, view.body);
}

const nn::TokenView kSeven{-1, {0}, {}, {{0, {0, 7}}}, {7}};
const std::vector<int32_t> kIds{3, 1, 4, 1, 5, 39, 39};

TEST(Llada, ABatchIsItsRowsBitByBit) {
  for (const auto& config : {llada_moe_config(), llada2_config()}) {
    const auto model = make(config, NamedNoise());
    const nn::TokenView both{-1, {0, 1}, {}, {{0, {0, 3}}, {1, {0, 7}}}, {3, 7}};
    const Tensor packed = run(*model, {9, 8, 7, 3, 1, 4, 1, 5, 39, 39}, both);
    EXPECT_EQ(packed.slice(0, 3, 10).to_floats(), run(*model, kIds, kSeven).to_floats());
  }
}

TEST(Llada, LaterBlocksAreSeenOnlyWithoutABlockCausalMask) {
  for (bool causal : {false, true}) {
    const auto model = make(causal ? llada2_config() : llada_moe_config(), NamedNoise());
    std::vector<int32_t> other = kIds;
    other[6] = 2;  // in the second block of four
    const auto a = run(*model, kIds, kSeven).slice(0, 0, 4).to_floats();
    const auto b = run(*model, other, kSeven).slice(0, 0, 4).to_floats();
    EXPECT_EQ(a == b, causal);
  }
}

TEST(Llada, GivesLogitsOfPartsOfThePass) {
  const auto model = make(llada_moe_config(), NamedNoise());
  nn::KvAttention attention(model->geometry(), nn::sequences_of_lengths(kSeven.lengths));
  const nn::Hidden hidden = model->embed(kIds, kSeven);
  const Tensor all = model->logits(hidden, kSeven, kSeven.body);
  const Tensor part = model->logits(hidden, kSeven, {{0, {2, 5}}});
  EXPECT_EQ(part.to_floats(), all.slice(0, 2, 5).to_floats());
  EXPECT_THROW(model->logits(hidden, kSeven, {{0, {5, 8}}}), Error);
  EXPECT_EQ(model->logits(hidden, kSeven, {}).shape(), (tensor::Shape{0, 40}));
}

TEST(Llada, NamesAnIdOutsideTheVocabulary) {
  const auto model = make(llada_moe_config(), NamedNoise());
  EXPECT_THROW(model->embed(std::vector<int32_t>{1, 40, 2, 3, 4, 5, 6}, kSeven), Error);
  EXPECT_THROW(model->embed(std::vector<int32_t>{1}, kSeven), Error);
}

TEST(Llada, RunsOnMetaWithShapesAlone) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const auto model = make(llada2_config(), NamedNoise(tensor::Device::meta), DType::bf16);
  EXPECT_EQ(run(*model, kIds, kSeven).shape(), (tensor::Shape{7, 40}));
  EXPECT_GT(scope.meter->total().flops, 1e5);
}

}  // namespace
}  // namespace tessera::models
