#include "models/dit_moe_pipeline.h"

#include <cmath>

#include "base/config_reader.h"
#include "base/fail.h"

namespace tessera::models {
namespace {

using base::Json;

constexpr int64_t kMost = int64_t{1} << 20;  // upper bound of sizes in a configuration

}  // namespace

DitMoeConfig parse_dit_moe_config(const Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  const auto there = [&](const char* key) {
    require(reader.has(key), ErrorCode::model,
            "{}: '{}' is missing; tools/convert_dit_moe.py writes a complete file", where, key);
    return key;
  };
  DitMoeConfig c;
  c.hidden_size = reader.integer(there("hidden_size"), 0, 8, kMost);
  c.depth = reader.integer(there("depth"), 0, 1, 10000);
  c.num_heads = reader.integer(there("num_heads"), 0, 1, 10000);
  c.patch_size = reader.integer(there("patch_size"), 0, 1, 256);
  c.in_channels = reader.integer(there("in_channels"), 0, 1, 1024);
  c.input_size = reader.integer(there("input_size"), 0, 1, 1 << 16);
  c.mlp_ratio = reader.number(there("mlp_ratio"), 0, 0.01, 1000);
  c.num_experts = reader.integer(there("num_experts"), 0, 1, 1 << 16);
  c.num_experts_per_tok = reader.integer(there("num_experts_per_tok"), 0, 1, c.num_experts);
  c.n_shared_experts = reader.integer(there("n_shared_experts"), 0, 0, 1000);
  c.norm_topk_prob = reader.flag("norm_topk_prob", false);
  c.learn_sigma = reader.flag("learn_sigma", true);
  c.num_classes = reader.integer(there("num_classes"), 0, 1, kMost);
  c.fused_qkv = reader.choice("attention", "flash", {"flash", "timm"}) == "flash";
  c.qk_norm = reader.flag("qk_norm", c.fused_qkv);
  c.frequency_embedding_size = reader.integer(there("frequency_embedding_size"), 0, 2, 1 << 16);
  require(
      c.hidden_size % c.num_heads == 0 && c.head_dim() % 8 == 0 && c.head_dim() <= 512,
      ErrorCode::model,
      "{}: hidden_size {} over num_heads {} gives no head width that is a multiple of 8 up to 512",
      where, c.hidden_size, c.num_heads);
  require(c.hidden_size % 4 == 0 && c.input_size % c.patch_size == 0, ErrorCode::model,
          "{}: input_size {} is no multiple of patch_size {}", where, c.input_size, c.patch_size);
  require(std::floor(c.mlp_ratio * double(c.hidden_size)) == c.mlp_ratio * double(c.hidden_size),
          ErrorCode::model, "{}: mlp_ratio {} times hidden_size {} is no whole width", where,
          c.mlp_ratio, c.hidden_size);
  return c;
}

PipelineSpec dit_moe_pipeline(const Source& source) {
  const DitMoeConfig c = parse_dit_moe_config(source.config, source.where);
  PipelineSpec spec;
  spec.blocks = c.depth;
  spec.make = network_of<DitMoe>(c);
  spec.facts = facts_of({{"depth", c.depth},
                         {"hidden_size", c.hidden_size},
                         {"num_heads", c.num_heads},
                         {"num_experts", c.num_experts},
                         {"num_experts_per_tok", c.num_experts_per_tok},
                         {"n_shared_experts", c.n_shared_experts},
                         {"expert_width", c.expert_width()},
                         {"input_size", c.input_size},
                         {"patch_size", c.patch_size},
                         {"num_classes", c.num_classes}});
  spec.facts.emplace_back("attention", c.fused_qkv ? "flash" : "timm");
  spec.forward_names = {.latent = "x", .timestep = "t", .conditioning = {"y"}};
  spec.inputs = {{"y", {}, DType::i32}};
  spec.trained = square_layout(c.in_channels, c.patch_size, c.input_size);
  spec.guided_channels = c.in_channels;
  spec.guided_channels_of = {{"ddpm", 3}};
  spec.classes = c.num_classes;
  // The released S and B checkpoints (timm attention) were trained with DDPM, XL and G as flows.
  spec.scheduler = c.fused_qkv ? "rectified-flow" : "ddpm";
  return spec;
}

}  // namespace tessera::models
