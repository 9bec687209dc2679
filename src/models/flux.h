#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"
#include "ops/rope.h"

namespace tessera::models {

/// Sizes of a FLUX transformer, named as in config.json.
struct FluxConfig {
  int64_t num_attention_heads = 24, attention_head_dim = 128;
  int64_t num_layers = 19, num_single_layers = 38, in_channels = 64, out_channels = 64;
  int64_t joint_attention_dim = 4096, pooled_projection_dim = 768;
  std::vector<int64_t> axes_dims_rope{16, 56, 56};
  bool guidance_embeds = false;

  /// Channels of a token beside the noise's: the masked image and the mask of FLUX.1-Fill; else 0.
  int64_t fill_channels() const { return in_channels - out_channels; }
  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
  int64_t blocks() const { return num_layers + num_single_layers; }
};

/// FLUX.1 (Black Forest Labs 2024): double blocks with separate weights for text and image, then
/// single blocks with shared weights and attention parallel to the MLP.
class Flux : public nn::Denoiser {
 public:
  Flux(const FluxConfig& config, const nn::Weights& weights, const nn::Portion& portion,
       DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }
  std::string block_name(int index) const override;

  /// Conditioning: "encoder_hidden_states" [batch, tokens, joint_attention_dim],
  /// "pooled_projections" [batch, pooled_projection_dim], and "guidance" [batch] for
  /// guidance-distilled models.
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
    DoubleBlock both;
    nn::Linear image_modulation, text_modulation;  ///< modulations of a double block
    Projections heads;                             ///< projections of a single block
    nn::Linear modulation, widen, out;
  };
  Block load_double(const nn::Weights& weights, int64_t index) const;
  Block load_single(const nn::Weights& weights, int64_t index) const;
  Projections load_heads(const nn::Weights& weights, const std::string& name, bool text) const;
  nn::Joint double_block(int site, const DitStep& step, const nn::Placement& placement,
                         const nn::Joint& streams, const nn::Seams& seams) const;
  nn::Joint single_block(int site, const DitStep& step, const nn::Placement& placement,
                         const nn::Joint& streams, const nn::Seams& seams) const;

  FluxConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  nn::Linear image_in_, text_in_, final_modulation_;
  Mlp time_, guidance_, pooled_;
  PatchHead head_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
