#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/dit_parts.h"

namespace tessera::models {

/// Sizes of a Stable Diffusion 3 transformer, named as in config.json.
struct Sd3Config {
  int64_t num_attention_heads = 18, attention_head_dim = 64, num_layers = 18;
  int64_t in_channels = 16, out_channels = 16, patch_size = 2, sample_size = 128;
  int64_t joint_attention_dim = 4096, pooled_projection_dim = 2048, pos_embed_max_size = 96;
  std::set<int64_t> dual_attention_layers;  ///< 3.5 medium: blocks with a second attention
  bool qk_norm = false;

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
};

/// Stable Diffusion 3 and 3.5 (Esser et al. 2024): an MM-DiT, with joint attention of text and
/// image and separate weights.
class Sd3 : public nn::Denoiser {
 public:
  Sd3(const Sd3Config& config, const nn::Weights& weights, const nn::Portion& portion, DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }

  /// Conditioning: "encoder_hidden_states" [batch, tokens, joint_attention_dim] and
  /// "pooled_projections" [batch, pooled_projection_dim].
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
  struct Stream {
    Projections heads;
    nn::Linear out, modulation;
    Mlp mlp;
  };
  struct Block {
    Stream image, text;
    Projections second;  ///< optional second attention, over the image only
    nn::Linear second_out;
    int site = 0;  ///< site of the joint attention; the second attention has the next site
    bool dual = false, last = false;
  };
  Block load_block(const nn::Weights& weights, int64_t index) const;
  Projections load_heads(const nn::Weights& weights, const std::string& name, bool text,
                         bool queries) const;

  Sd3Config config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  PatchEmbed patch_;
  RowTable positions_;  ///< [pos_embed_max_size^2, hidden]
  Mlp time_, pooled_;
  nn::Linear text_, final_modulation_;
  PatchHead head_;
  std::vector<Block> layers_;
};

}  // namespace tessera::models
