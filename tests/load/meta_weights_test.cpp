#include "load/meta_weights.h"

#include <gtest/gtest.h>

#include "scratch_folder.h"
#include "tensor/scope.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

void ask(const MetaWeights& weights) {
  weights.matrix("w", 48, 32, DType::bf16);
  weights.paired("gate", "up", 16, 32, DType::bf16);
  weights.conv("filter", "filter.bias", {8, 4, 3, 3}, DType::f32);
  weights.vector("b", 48);
  weights.get("table", {10, 4});
}

std::map<std::string, Tensor> fitting() {
  auto zeros = [](const tensor::Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  return {{"w", zeros({48, 32})},   {"gate", zeros({16, 32})},       {"up", zeros({16, 32})},
          {"b", zeros({48})},       {"filter", zeros({8, 4, 3, 3})}, {"filter.bias", zeros({8})},
          {"table", zeros({10, 4})}};
}

TensorSet written(const ScratchFolder& folder, const std::map<std::string, Tensor>& tensors) {
  write_safetensors(folder.path("model.safetensors"), tensors);
  return open_component(folder.path());
}

}  // namespace

TEST(MetaWeights, RecordsWhatIsAsked) {
  const MetaWeights weights;
  ask(weights);
  const auto asked = weights.asked();
  EXPECT_EQ(asked.size(), 7u);
  EXPECT_EQ(asked.at("w"), (tensor::Shape{48, 32}));
  EXPECT_EQ(asked.at("filter.bias"), (tensor::Shape{8}));
  EXPECT_EQ(weights.parameters(), 48 * 32 + 2 * 16 * 32 + 8 * 36 + 8 + 48 + 40);
  EXPECT_FALSE(weights.has("w"));
}

TEST(MetaWeights, HandsOutMetaTensors) {
  const MetaWeights weights(DType::f16);
  EXPECT_TRUE(weights.get("table", {10, 4}).is_meta());
  EXPECT_EQ(weights.get("table", {10, 4}).dtype(), DType::f16);
  EXPECT_EQ(weights.vector("b", 3).dtype(), DType::f32);
  EXPECT_TRUE(weights.matrix("w", 48, 32, DType::bf16)->data.is_meta());
  EXPECT_THROW(weights.get("table", {10, 5}), Error);
}

TEST(MetaWeights, CountsPackedBytesOnly) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bound(scope);
  const MetaWeights weights;
  const ops::Weight w = weights.matrix("w", 64, 64, DType::bf16);
  const int64_t bytes = scope.memory->current(tensor::MemoryClass::weights);
  EXPECT_GE(bytes, 64 * 64 * 2);
  EXPECT_EQ(scope.memory->peak(), bytes) << "the unpacked weight is freed once it is packed";
}

TEST(MetaWeights, CountsASliceOnceWhileItIsHeld) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bound(scope);
  const auto held = [&] { return scope.memory->current(tensor::MemoryClass::weights); };
  const MetaWeights weights;
  const nn::Cut upper{0, {{0, 32}}}, lower{0, {{32, 64}}};
  ops::Weight first = weights.matrix("w", 64, 64, DType::bf16, upper);
  const int64_t half = held();
  const ops::Weight again = weights.matrix("w", 64, 64, DType::bf16, upper);
  EXPECT_EQ(again, first);
  EXPECT_EQ(held(), half);
  {
    const ops::Weight rest = weights.matrix("w", 64, 64, DType::bf16, lower);
    EXPECT_EQ(held(), 2 * half);
    const Tensor table = weights.get("w", {64, 64}), same = weights.get("w", {64, 64});
    EXPECT_EQ(held(), 2 * half + 64 * 64 * 2) << "as it is stored, it is another";
  }
  EXPECT_EQ(held(), half);
}

TEST(MetaWeights, AnswersForTheFilesItKnows) {
  const ScratchFolder folder;
  const MetaWeights weights(written(folder, fitting()));
  EXPECT_TRUE(weights.has("w"));
  EXPECT_FALSE(weights.has("none"));
  EXPECT_EQ(weights.get("table", {10, 4}).dtype(), DType::f32);
}

TEST(CheckNames, AcceptsWhatFits) {
  const ScratchFolder folder;
  const MetaWeights weights;
  ask(weights);
  EXPECT_EQ(check_names(weights, written(folder, fitting()), folder.path()), "");
}

TEST(CheckNames, NamesEverythingAtOnce) {
  const ScratchFolder folder;
  const MetaWeights weights;
  ask(weights);
  auto tensors = fitting();
  tensors.erase("up");
  tensors["b"] = Tensor::zeros({47}, DType::f32);
  tensors["filter"] = Tensor::zeros({8, 36}, DType::f32);
  for (int i = 0; i < 11; ++i) tensors["more" + std::to_string(i)] = Tensor::zeros({1}, DType::u8);
  const TensorSet set = written(folder, tensors);
  const std::string message = model_error([&] { (void)check_names(weights, set, folder.path()); });
  expect_says(message, folder.path());
  expect_says(message, "1 missing: 'up' [16, 32]");
  expect_says(
      message,
      "2 of another shape: 'b' is [47], expected [48], 'filter' is [8, 36], expected [8, 4, 3, 3]");
  expect_says(message, "11 that the model does not know: 'more{0-10}'");
}

TEST(CheckNames, LeavesUnusedAlone) {
  const ScratchFolder folder;
  const MetaWeights weights;
  ask(weights);
  auto tensors = fitting();
  tensors["encoder.conv.weight"] = tensors["position_ids"] = Tensor::zeros({1}, DType::f32);
  const TensorSet set = written(folder, tensors);
  const std::vector<std::string> unused = {"encoder.*", "position_ids"};
  EXPECT_EQ(check_names(weights, set, folder.path(), unused), "");
  EXPECT_EQ(check_names(weights, set, folder.path(), std::span(unused).first(1)),
            "'" + folder.path() + "' holds 1 tensor that nothing here reads: 'position_ids'");
}

TEST(CheckNames, WhatNobodyReadsIsNamedAndNoError) {
  const ScratchFolder folder;
  const MetaWeights weights;
  ask(weights);
  auto tensors = fitting();
  for (int i = 0; i < 300; ++i) tensors["ema." + std::to_string(i)] = Tensor::zeros({1}, DType::u8);
  tensors["logit_scale"] = Tensor::zeros({1}, DType::f32);
  EXPECT_EQ(check_names(weights, written(folder, tensors), folder.path()),
            "'" + folder.path() +
                "' holds 301 tensors that nothing here reads: 'ema.{0-299}', 'logit_scale'");
}

TEST(CheckNames, WhatQuantisesAWeightAndIsNotReadIsRefusedByName) {
  const auto said = [](const std::string& stray) {
    const ScratchFolder folder;
    MetaWeights weights;
    for (const char* name : {"blocks.0.fc.weight", "blocks.0.table", "experts.0.down_proj.weight"})
      weights.matrix(name, 48, 32, DType::bf16);
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, shape] : weights.asked())
      tensors.emplace(name, Tensor::zeros(shape, DType::bf16));
    tensors.emplace(stray, Tensor::zeros({1}, DType::f32));
    const TensorSet set = written(folder, tensors);
    try {
      return "passed: " + check_names(weights, set, "folder");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  for (const char* name :
       {"blocks.0.fc.weight_scale", "blocks.0.fc.scale_weight", "blocks.0.fc.comfy_quant",
        "blocks.0.fc.weight_scale_inv", "blocks.0.fc.weight_scale_2", "blocks.0.fc.input_scale",
        "blocks.0.fc.scale_input", "blocks.0.fc.weight.absmax", "blocks.0.fc.weight.quant_map",
        "blocks.0.fc.weight.quant_state.bitsandbytes__nf4", "blocks.0.fc.SCB",
        "blocks.0.fc.weight_zero_point", "blocks.0.fc.scales", "blocks.0.fc.qzeros",
        "blocks.0.fc.g_idx", "blocks.0.table_scale", "experts.down_proj_scales", "scaled_fp8"}) {
    const std::string says = said(name);
    EXPECT_NE(says.find("quantised by another program"), std::string::npos) << name << ": " << says;
    EXPECT_NE(says.find(std::string("'") + name + "'"), std::string::npos) << says;
  }
  for (const char* name : {"logit_scale", "blocks.0.fc.more", "blocks.1.fc.weight_scale",
                           "text_projection.weight", "blocks.0.logit_scale"})
    EXPECT_TRUE(said(name).starts_with("passed: 'folder' holds 1 tensor")) << said(name);
}

TEST(MetaWeights, KnowsWhatIsPackedInWhatAndTheScalesBesideIt) {
  const ScratchFolder folder;
  const TensorSet tensors = written(folder, {{"q", Tensor::zeros({4, 8}, DType::i8)},
                                             {"q_scale", Tensor::zeros({4}, DType::f32)},
                                             {"w", Tensor::zeros({4, 8}, DType::f32)}});
  const MetaWeights weights(tensors);
  weights.paired("q", "w", 4, 8, DType::i8);
  weights.matrix("w", 4, 8, DType::bf16);
  EXPECT_EQ(weights.packed_in(DType::i8), (std::vector<std::string>{"q"}));
  EXPECT_EQ(weights.packed_in(DType::bf16), (std::vector<std::string>{"w"}));
  EXPECT_EQ(check_names(weights, tensors, "here"), "");
  weights.get("w", {4, 8});
  EXPECT_TRUE(weights.packed_in(DType::bf16).empty()) << "a table of embeddings as well";
  TensorSet dense = tensors;
  dense.hold_dense_in_int8(false);
  const MetaWeights stored(dense);
  EXPECT_EQ(stored.matrix("q", 4, 8, DType::bf16)->dtype, DType::i8);
  EXPECT_EQ(stored.matrix("w", 4, 8, DType::bf16)->dtype, DType::bf16);
}

}  // namespace tessera::load
