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
  /// Attention of one layer. Sliding layers have a window and a value projection; global layers
  /// take their values from the key projection.
  struct Layer {
    int64_t kv_heads = 0, head_dim = 0;
    int64_t window = 0;        ///< tokens that a token sees, itself included; 0: global
    int64_t turned_pairs = 0;  ///< of head_dim / 2 rotary pairs; the others keep angle 0
    double theta = 10000;
  };
  int64_t vocabulary = 0, hidden = 0, heads = 0;
  int64_t dense_width = 0, expert_width = 0, experts = 0, top_k = 0;
  std::vector<Layer> layers;
  double eps = 1e-6;
  double logit_cap = 30;  ///< cap * tanh(logits / cap)
  bool tied = true;       ///< encoder, decoder and head share their weights
  bool bias = false;      ///< of q, k, v and the output projection
  int64_t canvas = 256;   ///< tokens that are denoised together
  int64_t context = 0;    ///< positions
};

/// DiffusionGemma (Google 2026): Gemma 4 with experts in two modes. Text is encoded causally and
/// leaves keys and values; a canvas of tokens that see each other and all text is denoised over
/// them, each pass conditioned on the logits of the one before.
class DiffusionGemma : public nn::TokenModel {
 public:
  /// Routed experts that the portion does not hold have no weights.
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
    nn::Linear q, k, v, out;  // a global layer has no v
    ops::Expert dense;
    Tensor router_norm;  // f32 [hidden]: the router's scale / sqrt(hidden)
    nn::Router router;
    nn::ExpertWeights experts;
    int expert_site = 0;
    float scale = 1;  // of the whole stream behind the block
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
  Tensor embedding_, text_embedding_;  // of the canvas; of text
  Tensor conditioning_norm_;
  ops::Expert conditioning_;    // MLP of self-conditioning
  ops::Weight mean_embedding_;  // the canvas's embedding, [hidden, vocabulary]
  Tensor final_norm_;
  ops::Weight head_;
  std::vector<Block> canvas_blocks_;
  std::vector<Block> text_blocks_;  // as the others, but for `scale`, where weights are tied
};

/// One routed expert, in `dtype`. `block`: the canvas's layers, then, where weights are not tied,
/// the layers of the text encoder.
ops::Expert load_routed_expert(const DiffusionGemmaConfig& config, const nn::Weights& weights,
                               int64_t block, int64_t expert, DType dtype);

}  // namespace tessera::models
