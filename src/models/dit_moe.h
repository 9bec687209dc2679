#pragma once

#include <vector>

#include "models/dit_parts.h"

namespace tessera::models {

/// Sizes of a DiT-MoE, named as in config.json.
struct DitMoeConfig {
  int64_t hidden_size = 0, depth = 0, num_heads = 0;
  int64_t patch_size = 2, in_channels = 4, input_size = 32;
  double mlp_ratio = 4;
  int64_t num_experts = 8, num_experts_per_tok = 2, n_shared_experts = 2;
  bool norm_topk_prob = false, learn_sigma = true;
  int64_t num_classes = 1000;
  bool fused_qkv = true;  ///< attention "flash": Wqkv, out_proj; "timm": qkv, proj
  bool qk_norm = true;
  int64_t frequency_embedding_size = 256;

  int64_t out_channels() const { return learn_sigma ? 2 * in_channels : in_channels; }
  int64_t expert_width() const { return static_cast<int64_t>(mlp_ratio * double(hidden_size)); }
  int64_t head_dim() const { return hidden_size / num_heads; }
};

/// DiT-MoE (Fei et al. 2024, "Scaling Diffusion Transformers to 16 Billion Parameters"): a DiT
/// (Peebles & Xie 2023) with MLPs of top-k routed experts and a shared expert.
class DitMoe : public nn::Denoiser {
 public:
  DitMoe(const DitMoeConfig& config, const nn::Weights& weights, const nn::Portion& portion,
         DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }

  /// Conditioning: "y" i32 [batch], labels in [0, num_classes]; the last is unconditional.
  nn::ContextPtr prepare(const nn::Conditioning& conditioning,
                         const nn::TokenShape& shape) const override;
  nn::PlacementPtr place(const nn::Context& context, const nn::TokenView& view) const override;
  nn::StepContextPtr at(const nn::Context& context, const Tensor& timestep) const override;
  nn::Hidden embed(const nn::Placement& placement, const Tensor& latent) const override;
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  Tensor head(const nn::StepContext& step, const nn::Placement& placement,
              const nn::Hidden& hidden) const override;
  Tensor first_input(const nn::StepContext& step, const nn::Placement& placement,
                     const nn::Hidden& hidden, const nn::Seams& seams) const override;

 private:
  struct Block {
    nn::Linear qkv, out, modulation;
    HeadNorm q_norm, k_norm;
    nn::Router router;
    nn::ExpertWeights experts;
  };
  Block load_block(const nn::Weights& weights, const nn::Portion& portion, int64_t index) const;
  void load_ends(const nn::Weights& weights, const nn::Portion& portion);

  DitMoeConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  PatchEmbed patch_;
  Tensor positions_, labels_;
  nn::Linear time_in_, time_out_, final_modulation_;
  ops::Weight final_weight_;
  Tensor final_bias_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
