#include "pipeline/forward_tokens.h"

#include <fmt/format.h>

#include "ops/elementwise.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

// The output of `tessera forward` for inputs of a language model.
load::SafetensorsFile run(const golden::Scratch& scratch, const std::string& folder,
                          const Tensors& inputs, bool trace = false) {
  load::write_safetensors(scratch / "in.safetensors", inputs);
  Model::open(folder, golden::options(Precision::f32))
      .forward({.component = ModelPart::model,
                .inputs = scratch / "in.safetensors",
                .outputs = scratch / "out.safetensors",
                .trace = trace});
  return load::SafetensorsFile(scratch / "out.safetensors");
}

Tensor ids_of(const std::vector<int32_t>& ids, const tensor::Shape& shape) {
  return Tensor::from(std::span<const int32_t>(ids), shape);
}

std::vector<float> values(const load::SafetensorsFile& file, const std::string& name) {
  return file.get(name).to_floats();
}

TEST(ForwardTokens, LogitsAndHiddenStatesAreTheReferences) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const golden::LladaCase golden(name);
    for (const std::string prefix : {"forward.0.", "forward.1."}) {
      const golden::Scratch scratch;
      const std::vector<int32_t> ids = golden.ids(prefix + "tokens");
      const auto tokens = static_cast<int64_t>(ids.size());
      const auto out = run(scratch, golden.folder + "/model",
                           {{"input_ids", golden.io.get(prefix + "tokens")}}, true);
      const auto logits = golden.io.get(prefix + "logits");
      EXPECT_EQ(out.get("logits").shape(), logits.shape());
      EXPECT_LT(golden::max_error(values(out, "logits"), logits.to_floats()), 1e-4) << name;
      EXPECT_EQ(values(out, "out"), values(out, "logits"));
      const Tensor hidden = golden.io.get(prefix + "hidden");
      ASSERT_EQ(out.entries().size(), static_cast<size_t>(hidden.size(0)) + 2);
      for (int64_t b = 0; b < hidden.size(0); ++b) {
        const auto mine = out.get(fmt::format("hidden.{}", b));
        EXPECT_EQ(mine.size(0), tokens);
        EXPECT_LT(golden::max_error(mine.to_floats(), golden::row(hidden, b)), 1e-4);
      }
    }
  }
}

TEST(ForwardTokens, RowsAreThemselvesAloneAndPaddingIsNotSeen) {
  const golden::LladaCase golden("llada_moe");
  const std::string folder = golden.folder + "/model";
  const golden::Scratch scratch;
  const auto both = run(scratch, folder,
                        {{"input_ids", ids_of({5, 6, 7, 8, 9, 10, 11, 12}, {2, 4})},
                         {"attention_mask", ids_of({1, 1, 1, 1, 1, 1, 0, 0}, {2, 4})},
                         {"position_ids", ids_of({0, 1, 2, 3, 0, 1, 2, 3}, {2, 4})}});
  const Tensor logits = both.get("logits");
  EXPECT_EQ(logits.shape(), tensor::Shape({2, 4, 96}));
  const auto first = run(scratch, folder, {{"input_ids", ids_of({5, 6, 7, 8}, {4})}});
  const auto second = run(scratch, folder, {{"input_ids", ids_of({9, 10}, {2})}});
  EXPECT_EQ(golden::row(logits, 0), values(first, "logits"));
  const std::vector<float> padded = golden::row(logits, 1), short_one = values(second, "logits");
  EXPECT_TRUE(std::equal(short_one.begin(), short_one.end(), padded.begin()));
  EXPECT_TRUE(std::all_of(padded.begin() + static_cast<std::ptrdiff_t>(short_one.size()),
                          padded.end(), [](float x) { return x == 0; }));
}

// The mask of block-causal models: a token sees its own block and earlier blocks.
Tensor block_mask(int64_t tokens, int64_t block) {
  std::vector<float> mask;
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) mask.push_back(j / block <= i / block ? 1 : 0);
  return Tensor::from(std::span<const float>(mask), {1, 1, tokens, tokens});
}

TEST(ForwardTokens, AMaskOfBlocksSaysTheirLength) {
  const golden::LladaCase golden("llada2");
  const std::string folder = golden.folder + "/model";
  const golden::Scratch scratch;
  const Tensor ids = ids_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 12});
  const auto plain = values(run(scratch, folder, {{"input_ids", ids}}), "logits");
  const auto masked = [&](int64_t block) {
    return values(
        run(scratch, folder, {{"input_ids", ids}, {"attention_mask", block_mask(12, block)}}),
        "logits");
  };
  EXPECT_EQ(masked(8), plain);  // the configuration's
  EXPECT_NE(masked(4), plain);
  EXPECT_NE(masked(12), plain);
}

TEST(ForwardTokens, WhatDoesNotFitIsOneLine) {
  const golden::Scratch scratch;
  const auto said = [&](const char* name, const Tensors& inputs) {
    return golden::error_of(
        [&] { run(scratch, golden::LladaCase(name).folder + "/model", inputs); });
  };
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const Tensor ids = ids_of({1, 2, 3, 4}, {1, 4});
  has(said("llada2", {{"x", ids}}), "takes no 'x'");
  has(said("llada2", {{"input_ids", ops::cast(block_mask(2, 1), DType::f32)}}), "whole numbers");
  has(said("llada2", {{"input_ids", ids_of({1, 96}, {2})}}), "vocabulary of 96");
  has(said("llada2", {{"input_ids", ids}, {"attention_mask", block_mask(3, 1)}}), "[1, 1, 4, 4]");
  has(said("llada_moe", {{"input_ids", ids}, {"attention_mask", block_mask(4, 2)}}),
      "every token sees all");
  has(said("llada2", {{"input_ids", ids}, {"attention_mask", ids_of({0, 1, 1, 1}, {1, 4})}}),
      "ones, then zeros");
  has(said("llada2", {{"input_ids", ids}, {"position_ids", ids_of({1, 2, 3, 4}, {1, 4})}}),
      "position_ids");
  has(said("llada2", {{"input_ids", Tensor::zeros({1, 300}, DType::i32)}}), "context of 256");
}

}  // namespace
}  // namespace tessera
