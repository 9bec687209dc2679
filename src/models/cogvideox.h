#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"
#include "ops/rope.h"

namespace tessera::models {

/// Sizes of a CogVideoX transformer, named as in config.json.
struct CogVideoXConfig {
  int64_t num_attention_heads = 30, attention_head_dim = 64, num_layers = 30;
  int64_t in_channels = 16, out_channels = 16, patch_size = 2, patch_size_t = 0;  ///< t 0: none
  int64_t time_embed_dim = 512, text_embed_dim = 4096, max_text_seq_length = 226;
  int64_t sample_width = 90, sample_height = 60, sample_frames = 49, temporal_compression_ratio = 4;
  double spatial_interpolation_scale = 1.875, temporal_interpolation_scale = 1, norm_eps = 1e-5;
  bool rotary = false, attention_bias = true, patch_bias = true, norm_elementwise_affine = true;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
};

/// CogVideoX (Yang et al. 2024): joint attention of text and video over all frames, with separate
/// modulations and shared weights.
class CogVideoX : public nn::Denoiser {
 public:
  CogVideoX(const CogVideoXConfig& config, const nn::Weights& weights, const nn::Portion& portion,
            DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }

  /// Conditioning: "encoder_hidden_states" [batch, tokens, text_embed_dim].
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
    nn::Linear modulation1, modulation2, out;
    TokenNorm norm1, norm2;
    Projections heads;
    Mlp mlp;
  };
  Block load_block(const nn::Weights& weights, int64_t index) const;
  TokenNorm load_norm(const nn::Weights& weights, const std::string& name) const;
  Tensor sincos_positions(const nn::TokenShape& shape) const;
  ops::RotaryTable rotary_positions(const nn::TokenShape& shape, tensor::Device device) const;

  CogVideoXConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  ops::Weight patch_;
  Tensor patch_bias_;
  nn::Linear text_, final_modulation_;
  Mlp time_;
  TokenNorm norm_final_, norm_out_;
  PatchHead head_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
