#pragma once

#include <array>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/linear.h"
#include "ops/rope.h"

namespace tessera::models {

using nn::DType;
using nn::Tensor;

/// Sizes of a DiffusionGemma text model.
struct DiffusionGemmaConfig {
  /// Attention of a layer. Sliding layers have a window and a value projection; global layers take
  /// their values from the key projection.
  struct Layer {
    int64_t kv_heads = 0, head_dim = 0;
    int64_t window = 0;        ///< number of visible tokens, the token itself included; 0: global
    int64_t turned_pairs = 0;  ///< rotated pairs out of head_dim / 2; the others have angle 0
    double theta = 10000;
  };
  int64_t vocabulary = 0, hidden = 0, heads = 0;
  int64_t dense_width = 0, expert_width = 0, experts = 0, top_k = 0;
  std::vector<Layer> layers;
  double eps = 1e-6;
  double logit_cap = 30;  ///< cap * tanh(logits / cap)
  bool tied = true;       ///< encoder, decoder and head share their weights
  bool bias = false;      ///< biases of q, k, v and the output projection
  int64_t canvas = 256;   ///< tokens that are denoised together
  int64_t context = 0;    ///< maximum positions
};

/// DiffusionGemma (Google 2026): Gemma 4 with experts, in two modes. Text is encoded causally into
/// the KV cache. A canvas of tokens is then denoised with full attention over canvas and text; each
/// pass is conditioned on the previous logits.
class DiffusionGemma : public nn::TokenModel {
 public:
  /// Routed experts outside the portion have no weights.
  DiffusionGemma(const DiffusionGemmaConfig& config, const nn::Weights& weights,
                 const nn::Portion& portion, DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }
  int64_t vocabulary() const override { return config_.vocabulary; }

  nn::PlacementPtr place(const nn::TokenView& view) const override;
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView& view) const override;
  nn::Hidden embed_canvas(std::span<const int32_t> ids, const nn::TokenView& view,
                          const nn::EarlierLogits& earlier) const override;
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                const nn::Segments& of) const override;

 private:
  enum Norm { attention_in, attention_out, dense_in, dense_out, expert_in, expert_out, feed_out };
  struct Block {
    std::array<Tensor, 7> norms;  // by Norm
    Tensor q_norm, k_norm;
    nn::Linear q, k, v, out;  // v is empty in a global layer
    ops::Expert dense;
    Tensor router_norm;  // f32 [hidden]: the router's scale / sqrt(hidden)
    nn::Router router;
    nn::ExpertWeights experts;
    int expert_site = 0;
    float scale = 1;  // factor of the whole stream after the block
  };
  Block load_block(const nn::Weights& weights, const std::string& stack, int64_t index,
                   const nn::Portion& portion) const;
  void load_experts(const nn::Weights& weights, const std::string& name, const nn::Portion& portion,
                    Block& block) const;
  nn::Qkv heads_of(const Block& block, const DiffusionGemmaConfig::Layer& layer, const Tensor& x,
                   const ops::RotaryTable& rotary) const;
  Tensor routed(const Block& block, const nn::TokenView& view, const Tensor& x,
                const nn::Seams& seams) const;
  Tensor embedded(const Tensor& table, std::span<const int32_t> ids,
                  const nn::TokenView& view) const;
  Tensor normed(const Tensor& x, const Tensor& weight, int64_t width = 0) const;

  DiffusionGemmaConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  Tensor embedding_, text_embedding_;  // embeddings of the canvas; of text
  Tensor conditioning_norm_;
  ops::Expert conditioning_;    // MLP of self-conditioning
  ops::Weight mean_embedding_;  // the canvas's embedding, [hidden, vocabulary]
  Tensor final_norm_;
  ops::Weight head_;
  std::vector<Block> canvas_blocks_;
  std::vector<Block> text_blocks_;  // same as blocks if weights are tied, except for `scale`
};

/// Loads a routed expert in `dtype`. `block` counts the canvas layers and then, if weights are not
/// tied, the layers of the text encoder.
ops::Expert load_routed_expert(const DiffusionGemmaConfig& config, const nn::Weights& weights,
                               int64_t block, int64_t expert, DType dtype);

}  // namespace tessera::models
