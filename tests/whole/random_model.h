#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "load/safetensors.h"
#include "models/named_noise.h"
#include "models/registry.h"
#include "models/tiny_networks.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// A model folder of one of the tiny networks, with noise for weights and the scheduler of a folder
/// of the reference data ("": the model's own). With a VAE on demand, of 8 pixels a latent pixel.
class RandomModel {
 public:
  RandomModel(const models::Network& network, const std::string& scheduler, bool vae = false)
      : spec(spec_of(network)) {
    namespace fs = std::filesystem;
    std::ofstream(scratch_ / "config.json") << config_of(network).dump();
    Asked asked;
    spec.make(asked, spec.whole(), tensor::DType::f32);
    std::map<std::string, tensor::Tensor> weights;
    for (const auto& [name, shape] : asked.shapes)
      weights[name] = models::NamedNoise().get(name, shape);
    load::write_safetensors(scratch_ / "model.safetensors", weights);
    if (vae) make_vae(network.frames > 0);
    if (scheduler.empty()) return;
    fs::create_directory(path("scheduler"));
    fs::copy_file(
        TESSERA_TEST_DATA "/diffusers/" + scheduler + "/model/scheduler/scheduler_config.json",
        path("scheduler/scheduler_config.json"));
  }
  std::string path(const std::string& name = "") const { return scratch_ / name; }

  const models::PipelineSpec spec;

 private:
  void make_vae(bool video) {
    std::filesystem::create_directory(path("vae"));
    base::Json config{
        {"_class_name", video ? "AutoencoderKLCogVideoX" : "AutoencoderKL"},
        {"latent_channels", 4},
        {"layers_per_block", 1},
        {"norm_num_groups", 2},
        {"block_out_channels", base::Json::array({2, 2, 4, 4})},
    };
    std::ofstream(path("vae/config.json")) << config.dump();
    Asked asked;
    const models::VaeSpec made = models::vae_of(config["_class_name"], {config, "config.json"});
    made.decoder(asked, tensor::DType::f32);
    std::map<std::string, tensor::Tensor> weights;
    for (const auto& [name, shape] : asked.shapes)
      weights[name] = models::NamedNoise().get(name, shape);
    load::write_safetensors(path("vae/diffusion_pytorch_model.safetensors"), weights);
  }
  // The tensors of a network.
  struct Asked : models::NamedNoise {
    Asked() : NamedNoise(tensor::Device::meta) {}
    tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
      shapes.emplace(name, shape);
      return NamedNoise::stored(name, shape);
    }
    mutable std::map<std::string, tensor::Shape> shapes;
  };
  static base::Json config_of(const models::Network& network) {
    base::Json config = base::Json::parse(network.json(network.head_dim));
    if (!config.contains("model_type")) config["_class_name"] = network.type;
    return config;
  }
  static models::PipelineSpec spec_of(const models::Network& network) {
    const base::Json config = config_of(network);
    return models::pipeline_of(network.type, {config, "config.json"});
  }

  Scratch scratch_;
};

}  // namespace tessera::golden
