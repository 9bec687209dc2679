#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"
#include "ops/rope.h"

namespace tessera::models {

/// Sizes of a HunyuanDiT, named as in config.json.
struct HunyuanDitConfig {
  int64_t num_attention_heads = 16, attention_head_dim = 88, num_layers = 28;
  int64_t in_channels = 4, patch_size = 2, sample_size = 32;
  double mlp_ratio = 4;
  bool learn_sigma = true, use_style_cond_and_image_meta_size = true;
  int64_t cross_attention_dim = 1024, cross_attention_dim_t5 = 2048, pooled_projection_dim = 1024;
  int64_t text_len = 77, text_len_t5 = 256;

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
  int64_t out_channels() const { return learn_sigma ? 2 * in_channels : in_channels; }
};

/// HunyuanDiT (Li et al. 2024): a DiT with long skips, rotary positions and cross attention to text
/// from two encoders.
class HunyuanDit : public nn::Denoiser {
 public:
  HunyuanDit(const HunyuanDitConfig& config, const nn::Weights& weights, const nn::Portion& portion,
             DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }

  /// Conditioning: "encoder_hidden_states" [batch, text_len, cross_attention_dim],
  /// "encoder_hidden_states_t5" [batch, text_len_t5, cross_attention_dim_t5], with masks
  /// "text_embedding_mask" and "text_embedding_mask_t5" for padded text; some models also use
  /// "image_meta_size" [batch, 6] and "style" i32 [batch].
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
    nn::Linear shift, self_out, cross_out, skip;
    Projections self, cross;
    TokenNorm norm1, norm2, norm3, skip_norm;
    Mlp mlp;
  };
  void load_conditioning(const nn::Weights& weights);
  Block load_block(const nn::Weights& weights, int64_t index) const;
  Tensor pooled_text(const Tensor& text, int64_t batch) const;
  Tensor extra_embedding(const nn::Conditioning& conditioning, const Tensor& text,
                         int64_t batch) const;
  Tensor all_text(const nn::Conditioning& conditioning, const Tensor& t5, int64_t batch) const;

  HunyuanDitConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  PatchEmbed patch_;
  Mlp time_, extra_, text_;
  nn::Linear pool_q_, pool_k_, pool_v_, pool_out_, final_modulation_;
  Tensor pool_positions_, padding_, styles_;
  PatchHead head_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
