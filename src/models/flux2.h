#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"

namespace tessera::models {

/// Sizes of a FLUX.2 transformer, named as in config.json.
struct Flux2Config {
  int64_t num_attention_heads = 48, attention_head_dim = 128;
  int64_t num_layers = 8, num_single_layers = 48, in_channels = 128;
  int64_t joint_attention_dim = 15360, timestep_guidance_channels = 256;
  double mlp_ratio = 3, rope_theta = 2000, eps = 1e-6;
  std::vector<int64_t> axes_dims_rope{32, 32, 32, 32};

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
  int64_t inner() const { return static_cast<int64_t>(double(hidden()) * mlp_ratio); }
  int64_t blocks() const { return num_layers + num_single_layers; }
};

/// FLUX.2 (Black Forest Labs 2025): FLUX's blocks without biases, with a modulation shared by all
/// blocks, SwiGLU MLPs, and positions on four axes. Reference images may follow the noise as tokens
/// that are not denoised.
class Flux2 : public nn::Denoiser {
 public:
  Flux2(const Flux2Config& config, const nn::Weights& weights, const nn::Portion& portion,
        DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }
  std::string block_name(int index) const override;

  /// Conditioning: "encoder_hidden_states" [batch, tokens, joint_attention_dim]; for references
  /// also "reference_tokens" f32 [batch, reference tokens, in_channels] and "reference_sizes" i32
  /// [batch, 2 * references], height and width in tokens.
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
    nn::Linear widen, out;    ///< widen: queries, keys, values and MLP of a single block
    HeadNorm q_norm, k_norm;  ///< norms of a single block
  };
  HeadNorm head_norm_of(const nn::Weights& weights, const std::string& name) const;
  Block load_double(const nn::Weights& weights, int64_t index) const;
  Block load_single(const nn::Weights& weights, int64_t index) const;
  nn::Joint double_block(int site, const nn::StepContext& step, const nn::Placement& placement,
                         const nn::Joint& streams, const nn::Seams& seams) const;
  nn::Joint single_block(int site, const nn::StepContext& step, const nn::Placement& placement,
                         const nn::Joint& streams, const nn::Seams& seams) const;

  Flux2Config config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  nn::Linear time_in_, time_out_, image_in_, text_in_, head_;
  nn::Linear image_modulation_, text_modulation_, single_modulation_, final_modulation_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
