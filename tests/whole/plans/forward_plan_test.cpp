#include <cmath>

#include "test_paths.h"
#include "whole/llada_golden.h"
#include "whole/random_model.h"
#include "whole/text_model.h"

// A pass of a component under a plan, with the stream after every block, equals a single rank's.
namespace tessera {
namespace {

using golden::RandomModel;
using load::SafetensorsFile;
using models::kNetworks;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr int64_t kBatch = 3;

/// The outputs of a pass, by name.
Tensors pass(const std::string& folder, ModelPart part, const Tensors& inputs,
             const std::string& plan, Precision precision = Precision::f32) {
  const golden::Scratch scratch;
  load::write_safetensors(scratch / "in.safetensors", inputs);
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  Model::open(folder, options)
      .forward({.component = part,
                .inputs = scratch / "in.safetensors",
                .outputs = scratch / "out.safetensors",
                .trace = true});
  const SafetensorsFile file(scratch / "out.safetensors");
  Tensors outputs;
  for (const auto& [name, entry] : file.entries()) outputs[name] = file.get(name);
  return outputs;
}

void expect_same(const Tensors& many, const Tensors& one, double within, const std::string& what) {
  ASSERT_EQ(many.size(), one.size()) << what;
  for (const auto& [name, x] : one) {
    ASSERT_TRUE(many.contains(name)) << what << ": " << name;
    EXPECT_EQ(many.at(name).shape(), x.shape()) << what << ": " << name;
    if (within == 0) {
      EXPECT_TRUE(many.at(name).to_floats() == x.to_floats()) << what << ": " << name;
    } else {
      EXPECT_LT(golden::l2_error(many.at(name).to_floats(), x.to_floats()), within)
          << what << ": " << name;
    }
  }
}

Tensors inputs_of(const RandomModel& model, const models::Network& network) {
  const models::PipelineSpec& spec = model.spec;
  const nn::TokenLayout layout =
      spec.form == nn::LatentForm::packed ? spec.layout(6, 6) : spec.layout(6, 10, network.frames);
  Tensors inputs;
  inputs[spec.forward_names.latent] =
      models::NamedNoise().get("latent", nn::latent_shape(layout, spec.form, kBatch));
  inputs[spec.forward_names.timestep] = Tensor::from(std::vector<float>{0.7f, 0.2f, 0.4f}, {3});
  for (const auto& name : spec.forward_names.conditioning)
    for (const auto& input : spec.inputs) {
      if (input.name != name) continue;
      std::vector<int64_t> sizes{kBatch};
      sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
      if (sizes.size() == 3 && network.text > 0) sizes[1] = network.text;
      inputs[name] = input.dtype == tensor::DType::i32
                         ? Tensor::zeros(tensor::Shape(sizes), input.dtype)
                         : models::NamedNoise().get(name, tensor::Shape(sizes));
    }
  if (inputs.contains("y"))
    for (int32_t s = 0; s < kBatch; ++s) inputs["y"].data<int32_t>()[s] = s;
  return inputs;
}

class ForwardUnderAPlan : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Networks, ForwardUnderAPlan, testing::Range<size_t>(0, 6));

TEST_P(ForwardUnderAPlan, EveryBlockIsThatOfOneRank) {
  const models::Network& network = kNetworks[GetParam()];
  const RandomModel model(network, "");
  const Tensors inputs = inputs_of(model, network);
  const bool joint = model.spec.prefix({inputs}) > 0;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const auto run = [&](const std::string& plan) {
      return pass(model.path(), ModelPart::transformer, inputs, plan, precision);
    };
    const Tensors one = run("");
    const auto streams = [](const auto& entry) {
      return entry.first.find("block") != std::string::npos && !entry.first.ends_with(".context");
    };
    EXPECT_EQ(one.contains("block.0.context") || one.contains("transformer_blocks.0.context"),
              joint)
        << network.type;
    for (const char* plan : {"data=2", "ulysses=2", "ulysses=8", "data=3,ulysses=2,order=ulysses"})
      expect_same(run(plan), one, 0, network.type + std::string(" ") + plan);
    for (const char* plan : {"pipefusion=2", "pipefusion=2,patches=5", "patches=3",
                             "pipefusion=2,stages=1+", "data=2,ulysses=2,pipefusion=2,patches=2"}) {
      std::string asked = plan;
      if (asked.ends_with('+'))
        asked += std::to_string(std::count_if(one.begin(), one.end(), streams) - 1);
      expect_same(run(asked), one, 0, network.type + std::string(" ") + asked);
    }
    for (const char* plan : {"distrifusion=2", "distrifusion=3,shards=6", "shards=2", "shard=2",
                             "data=2,shard=2", "ulysses=2,shard=3"})
      expect_same(run(plan), one, 0, network.type + std::string(" ") + plan);
    if (network.type == std::string("DiTMoE"))
      for (const char* plan :
           {"ulysses=2,data=2,expert=4", "pipefusion=2,data=2,expert=2,schedule=interweaved",
            "data=2,expert=2,schedule=staggered-batch"})
        expect_same(run(plan), one, 0, plan);
    if (precision == Precision::bf16) continue;
    for (const char* plan : {"ring=3", "tensor=2", "ring=2,ulysses=2,data=2",
                             "pipefusion=2,patches=1,ring=2", "pipefusion=2,tensor=2,patches=4"})
      expect_same(run(plan), one, 1e-5, network.type + std::string(" ") + plan);
  }
}

TEST(ForwardTokensUnderAPlan, EveryBlockIsThatOfOneRank) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const std::string folder = golden::LladaCase(name).folder + "/model";
    const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
        ones{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    const Tensors inputs{{"input_ids", Tensor::from(std::span<const int32_t>(ids), {2, 7})},
                         {"attention_mask", Tensor::from(std::span<const int32_t>(ones), {2, 7})}};
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const auto run = [&](const std::string& plan) {
        return pass(folder, ModelPart::model, inputs, plan, precision);
      };
      const Tensors one = run("");
      ASSERT_TRUE(one.contains("hidden.3"));
      for (const char* plan : {"expert=2", "expert=3,placement=strided", "expert=16"})
        expect_same(run(plan), one, 0, std::string(name) + " " + plan);
      if (precision == Precision::f32) expect_same(run("tensor=2"), one, 1e-5, "tensor=2");
    }
  }
}

TEST(ForwardPlan, SaysWhatAPassTakes) {
  const RandomModel dit(kNetworks[0], "");
  const Tensors inputs = inputs_of(dit, kNetworks[0]);
  const auto said = [&](const std::string& plan, const Tensors& given) {
    try {
      pass(dit.path(), ModelPart::transformer, given, plan);
    } catch (const Error& e) {
      return std::to_string(static_cast<int>(e.code())) + " " + e.what();
    }
    return std::string("nothing was refused");
  };
  const auto has = [](const std::string& message, ErrorCode code, const char* part) {
    EXPECT_TRUE(message.starts_with(std::to_string(static_cast<int>(code)))) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(said("cfg=2", inputs), ErrorCode::plan, "leave out cfg=");
  has(said("data=4", inputs), ErrorCode::plan, "use data=3 or more samples");
  has(said("pipefusion=3", inputs), ErrorCode::plan, "use pipefusion=2 or less");
  has(said("patches=16", inputs), ErrorCode::plan, "use patches=15 or less");
  has(said("ulysses=13", inputs), ErrorCode::plan, "use ulysses=12 or less");
  has(said("tensor=5", inputs), ErrorCode::plan, "valid are");
  Tensors few = inputs;
  few["y"] = few["y"].slice(0, 0, 2).contiguous();
  has(said("data=3", few), ErrorCode::usage, "'y' is [2]; data= deals out 3 sequences");
  const std::string language = golden::LladaCase("llada2").folder + "/model";
  const std::vector<int32_t> ids{1, 2};
  const Tensors tokens{{"input_ids", Tensor::from(std::span<const int32_t>(ids), {1, 2})}};
  for (const char* plan : {"ulysses=2", "distrifusion=2", "shard=2"})
    EXPECT_NE(golden::error_of([&] {
                pass(language, ModelPart::model, tokens, plan);
              }).find("language models take expert=N or tensor=N"),
              std::string::npos);
  EXPECT_NE(golden::error_of([&] {
              pass(TESSERA_TEST_DATA "/diffusers/pixart_alpha/model", ModelPart::vae_decode,
                   {{"sample", Tensor::zeros({1, 4, 8, 8}, tensor::DType::f32)}}, "data=2");
            }).find("a vae.decode runs on one: leave out `plan`"),
            std::string::npos);
}

const std::string kPixArt = TESSERA_TEST_DATA "/diffusers/pixart_alpha/model";
const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

Tensors sample(const tensor::Shape& shape) {
  return {{"sample", models::NamedNoise().get("sample", shape)}};
}

TEST(ForwardVaeUnderAPlan, RanksMakeWhatOneMakes) {
  struct Case {
    std::string folder;
    ModelPart part;
    tensor::Shape shape;
  };
  for (const Case& c : {Case{kPixArt, ModelPart::vae_decode, {2, 4, 9, 6}},
                        Case{kPixArt, ModelPart::vae_encode, {2, 3, 77, 40}},
                        Case{kVideo, ModelPart::vae_decode, {1, 16, 5, 8, 6}},
                        Case{kVideo, ModelPart::vae_encode, {1, 3, 9, 64, 40}}}) {
    const Tensors one = pass(c.folder, c.part, sample(c.shape), "");
    EXPECT_EQ(one.size() > 3, c.folder == kPixArt) << "images are traced";
    for (const char* plan : {"ulysses=2,vae=2", "ring=3,vae=3", "data=2,cfg=2,ulysses=2,vae=5"})
      expect_same(pass(c.folder, c.part, sample(c.shape), plan), one, 1e-5,
                  c.shape.str() + " under " + plan);
  }
}

TEST(ForwardVaeUnderAPlan, WhatCannotRunIsNamed) {
  const auto said = [](const std::string& plan, const tensor::Shape& shape, VaeTiling tiling,
                       int64_t budget = 0) {
    const golden::Scratch scratch;
    load::write_safetensors(scratch / "in.safetensors", sample(shape));
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    options.memory_budget = budget;
    try {
      Model::open(kPixArt, options)
          .forward({.component = ModelPart::vae_decode,
                    .inputs = scratch / "in.safetensors",
                    .vae_tiling = tiling});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), budget > 0 ? ErrorCode::memory : ErrorCode::plan);
      return std::string(e.what());
    }
    return std::string();
  };
  const tensor::Shape high{1, 4, 6, 4}, low{1, 4, 2, 4};
  EXPECT_EQ(said("ulysses=3,vae=3", high, VaeTiling::off), "");
  EXPECT_NE(said("ulysses=3", high, VaeTiling::off).find("add vae="), std::string::npos);
  EXPECT_NE(said("vae=3", high, VaeTiling::off).find("it has 1"), std::string::npos);
  EXPECT_NE(said("ulysses=3,vae=3", low, VaeTiling::off).find("has 2 lines"), std::string::npos);
  EXPECT_NE(said("ulysses=3,vae=3", high, VaeTiling::on).find("leave out one of the two"),
            std::string::npos);
  const std::string small = said("ulysses=3,vae=3", high, VaeTiling::off, 1000);
  const std::string before = "it fits into `memory_budget` ";
  ASSERT_NE(small.find(before), std::string::npos) << small;
  const double named = std::stod(small.substr(small.find(before) + before.size())) * 1e6;
  EXPECT_EQ(said("ulysses=3,vae=3", high, VaeTiling::off, std::llround(named)), "");
}

}  // namespace
}  // namespace tessera
