#include "models/registry.h"

#include <gtest/gtest.h>

#include "models/published_models.h"
#include "models/tiny_model.h"
#include "models/tiny_networks.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(Registry, MakesWhatItNames) {
  for (const PublishedModel& model : published_models()) {
    const base::Json& parts = model.description.at("parts");
    if (!parts.contains("transformer")) continue;  // a language model
    const base::Json& part = parts.at("transformer");
    const std::string type = part.at("class");
    const PipelineSpec spec = pipeline_of(type, {part.at("config"), model.name});
    EXPECT_EQ(spec.classes, type == "dit_moe" ? 1000 : 0) << model.name;
    EXPECT_GT(spec.blocks, 0) << model.name;
  }
}

TEST(Registry, ListsWhatIsKnown) {
  try {
    pipeline_of("unet", {{}, "x/config.json"});
    FAIL() << "an unknown family was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("dit_moe"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("x/config.json"), std::string::npos);
  }
}

struct Impossible {
  const char *type, *config, *says;
};

std::string refusal_of(const Impossible& c) {
  try {
    pipeline_of(c.type, {base::Json::parse(c.config), "config.json"});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "nothing was refused";
}

TEST(Registry, EveryFamilyRefusesImpossibleNumbers) {
  const Impossible cases[] = {
      {"CogVideoXTransformer3DModel", R"({"norm_eps": -1})", "'norm_eps' is -1"},
      {"CogVideoXTransformer3DModel", R"({"norm_eps": 0})", "above 0 and below 1"},
      {"CogVideoXTransformer3DModel", R"({"spatial_interpolation_scale": 0})", "above 0"},
      {"CogVideoXTransformer3DModel", R"({"temporal_interpolation_scale": -2})", "is -2"},
      {"CogVideoXTransformer3DModel", R"({"freq_shift": 960})", "'freq_shift' is 960"},
      {"CogVideoXTransformer3DModel", R"({"time_embed_dim": 0})", "'time_embed_dim' is 0"},
      {"PixArtTransformer2DModel", R"({"caption_channels": 8, "interpolation_scale": -1})",
       "is -1"},
      {"PixArtTransformer2DModel", R"({"caption_channels": -8})", "'caption_channels' is -8"},
      {"SD3Transformer2DModel", R"({"attention_head_dim": -64})", "is -64"},
      {"SD3Transformer2DModel", R"({"pos_embed_max_size": 0})", "is 0"},
      {"FluxTransformer2DModel", R"({"num_attention_heads": 0})", "'num_attention_heads' is 0"},
      {"FluxTransformer2DModel", R"({"num_layers": -19})", "is -19"},
      {"ZImageTransformer2DModel", R"({"cap_feat_dim": 0})", "'cap_feat_dim' is 0"},
      {"ZImageTransformer2DModel", R"({"norm_eps": 2})", "'norm_eps' is 2"},
      {"Flux2Transformer2DModel", R"({"guidance_embeds": false, "mlp_ratio": 0})", "is 0"},
      {"Flux2Transformer2DModel", R"({"guidance_embeds": false, "eps": -1})", "'eps' is -1"},
      {"HunyuanDiT2DModel", R"({"mlp_ratio": -4.0})", "'mlp_ratio' is -4"},
      {"HunyuanDiT2DModel", R"({"mlp_ratio": 1e300})", "from 0.01 to 1000"},
      {"HunyuanDiT2DModel", R"({"sample_size": 0})", "'sample_size' is 0"},
      {"dit_moe", R"({"hidden_size": -384})", "'hidden_size' is -384"},
  };
  for (const Impossible& c : cases)
    EXPECT_NE(refusal_of(c).find(c.says), std::string::npos) << c.config << ": " << refusal_of(c);
}

// The peak bytes of a pass of two sequences, without weights.
int64_t held(const Network& n, tensor::Device device, tensor::DType dtype) {
  const TinyModel model(n.type, n.json(n.head_dim).c_str(), device, dtype);
  const nn::TokenLayout layout = model.spec.layout(4, 6, n.frames);
  const auto there = [&](const tensor::Tensor& x) {
    return device == tensor::Device::meta ? tensor::Tensor::empty(x.shape(), x.dtype(), device) : x;
  };
  nn::Conditioning conditioning = model.conditioning(2, n.text);
  for (auto& [name, x] : conditioning.tensors) x = there(x);
  const tensor::Tensor latent = there(model.latent(2, layout));
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  model(conditioning, 2, layout, latent);
  return scope.memory->peak();
}

TEST(Registry, ARunOnMetaHoldsTheBytesOfARun) {
  std::vector<Network> dense(std::begin(kUnevenNetworks), std::end(kUnevenNetworks));
  for (const Network& n : kNetworks)
    if (n.type != std::string("DiTMoE")) dense.push_back(n);  // routers choose only in a run
  for (const Network& n : dense)
    for (const tensor::DType dtype : {tensor::DType::f32, tensor::DType::bf16}) {
      const int64_t bytes = held(n, tensor::Device::cpu, dtype);
      EXPECT_GT(bytes, 0) << n.type;
      EXPECT_EQ(held(n, tensor::Device::meta, dtype), bytes) << n.type << tensor::name_of(dtype);
    }
}

}  // namespace
}  // namespace tessera::models
