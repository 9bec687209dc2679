#pragma once

#include <string>
#include <vector>

#include "models/dit_parts.h"
#include "ops/experts.h"

namespace tessera::models {

/// Image and caption tokens are each padded to a multiple of this number.
inline constexpr int64_t kZImageMultiple = 32;

/// Sizes of a Z-Image transformer, named as in config.json.
struct ZImageConfig {
  int64_t dim = 3840, n_heads = 30, n_layers = 30, n_refiner_layers = 2;
  int64_t in_channels = 16, cap_feat_dim = 2560, patch_size = 2;
  std::vector<int64_t> axes_dims{32, 48, 48}, axes_lens{1024, 512, 512};
  double rope_theta = 256, t_scale = 1000, norm_eps = 1e-5;
  bool qk_norm = true;

  int64_t head_dim() const { return dim / n_heads; }
  int64_t inner() const { return static_cast<int64_t>(double(dim) / 3 * 8); }
  int64_t blocks() const { return n_refiner_layers + n_layers; }
};

/// Z-Image (Alibaba 2025): a single stream of image and caption; blocks have norms before and after
/// each branch. Refiners come first: for the image with time, for the caption without. Both streams
/// are padded to a multiple of 32 tokens, and the padding takes part in attention.
class ZImage : public nn::Denoiser {
 public:
  ZImage(const ZImageConfig& config, const nn::Weights& weights, const nn::Portion& portion,
         DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }
  std::string block_name(int index) const override;

  /// Conditioning: "cap_feats" [batch, tokens, cap_feat_dim], and "cap_feats_mask" [batch, tokens]
  /// for texts of different lengths.
  nn::ContextPtr prepare(const nn::Conditioning& conditioning,
                         const nn::TokenShape& shape) const override;
  nn::PlacementPtr place(const nn::Context& context, const nn::TokenView& view) const override;
  nn::StepContextPtr at(const nn::Context& context, const Tensor& timestep) const override;
  nn::Hidden embed(const nn::Placement& placement, const Tensor& latent) const override;
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  Tensor head(const nn::StepContext& step, const nn::Placement& placement,
              const nn::Hidden& hidden) const override;
  nn::Reusable reusable() const override {
    return {.first = static_cast<int>(config_.n_refiner_layers), .joined = true};
  }
  Tensor first_input(const nn::StepContext& step, const nn::Placement& placement,
                     const nn::Hidden& hidden, const nn::Seams& seams) const override;

 private:
  struct Block {
    Projections heads;
    nn::Linear out, modulation;
    Tensor norms[4];            ///< before and after the attention, before and after the MLP
    ops::Expert mlp;            ///< MLP of a block
    nn::Linear gate, up, down;  ///< MLP of a caption refiner
  };
  Block load(const nn::Weights& weights, const std::string& name, bool of_caption) const;
  /// Modulation of a block at a step: [scale, gate] of the attention, then of the MLP.
  const std::vector<Tensor>& modulations(int index, const Block& w, const DitStep& at) const;
  Tensor refined(const Tensor& caption, const std::vector<ops::AttentionSpan>& spans,
                 const ops::RotaryTable& angles) const;
  Tensor caption_tokens(const Tensor& text, const std::vector<int64_t>& lengths,
                        int64_t padded_rows) const;
  Tensor normed(const Tensor& x, const Tensor& weight, const Tensor& scale = {},
                const ops::RowMap& row_of = {}) const;

  ZImageConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  nn::Linear time_in_, time_out_, caption_in_, final_modulation_;
  Tensor caption_norm_, caption_pad_, image_pad_;
  ops::Weight image_in_, head_;
  Tensor image_bias_, head_bias_;
  std::vector<Block> layers_, refiners_;  // refiners_: for the caption
};

}  // namespace tessera::models
