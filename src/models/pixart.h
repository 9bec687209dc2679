#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"

namespace tessera::models {

/// Sizes of a PixArt transformer, named as in config.json.
struct PixartConfig {
  int64_t num_attention_heads = 16, attention_head_dim = 72, num_layers = 28;
  int64_t in_channels = 4, out_channels = 8, patch_size = 2, sample_size = 128;
  int64_t cross_attention_dim = 1152, caption_channels = 4096;
  double interpolation_scale = 2;
  bool attention_bias = true, use_additional_conditions = true;

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
};

/// PixArt-alpha and -sigma (Chen et al. 2023, 2024): a DiT with a modulation shared by all blocks
/// and cross attention to the text.
class Pixart : public nn::Denoiser {
 public:
  Pixart(const PixartConfig& config, const nn::Weights& weights, const nn::Portion& portion,
         DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }

  /// Conditioning: "encoder_hidden_states" [batch, tokens, caption_channels],
  /// "encoder_attention_mask" [batch, tokens] if there is padding; models with micro-conditions:
  /// "resolution" [batch, 2] and "aspect_ratio" [batch, 1].
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
    Projections self;
    nn::Linear self_out, cross_q, cross_k, cross_v, cross_out;
    Mlp mlp;
    Tensor modulation;  ///< f32 [6 * hidden]
  };
  void load_conditioning(const nn::Weights& weights);
  Block load_block(const nn::Weights& weights, int64_t index) const;
  const Tensor& modulation_of(int index, const Block& w, const nn::StepContext& step) const;
  Tensor size_embedding(const nn::Conditioning& conditioning, int64_t batch) const;

  PixartConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  PatchEmbed patch_;
  Mlp time_, resolution_, aspect_, caption_;
  nn::Linear modulation_;
  Tensor final_modulation_;  ///< f32 [2 * hidden]
  PatchHead head_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
