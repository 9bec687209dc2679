#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/linear.h"
#include "nn/moe/selection_rule.h"
#include "ops/rope.h"

namespace tessera::models {

using nn::DType;
using nn::Tensor;

/// Sizes and options of a LLaDA decoder with experts, and the tensor names of its checkpoints.
struct LladaConfig {
  int64_t vocabulary = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_pairs = 0;  ///< rotated pairs out of head_dim / 2; fewer: partial rotary
  double rope_theta = 10000, eps = 1e-6;
  std::vector<bool> sparse;  ///< by layer: experts, or a dense SwiGLU
  int64_t dense_width = 0, expert_width = 0, shared_width = 0;
  int64_t experts = 0, top_k = 0;
  bool renormalise = false, sigmoid = false, ranking_bias = false;
  double scale = 1;
  int64_t groups = 1, top_groups = 1;
  bool qk_norm = true, qkv_bias = false, out_bias = false, tied = false;
  int causal_block = 0;         ///< 0: bidirectional
  nn::SelectionRule routing{};  ///< rule for the experts of a block's tokens
  bool ling_names = false;  ///< LLaDA2's names: word_embeddings, attention.query_key_value, dense

  int64_t context = 0;              ///< maximum positions
  std::optional<int32_t> mask;      ///< empty: defined by the tokenizer
  std::vector<int32_t> ends;        ///< end-of-text ids
  int32_t remove = -1, split = -1;  ///< ids that edit the length of a block; -1: unsupported

  int64_t layers() const { return static_cast<int64_t>(sparse.size()); }
};

/// LLaDA-MoE (Zhu et al. 2025) and LLaDA2 (Ant 2025): masked diffusion language models,
/// bidirectional transformers with MLPs of experts.
class Llada : public nn::TokenModel {
 public:
  /// Routed experts outside the portion have no weights.
  Llada(const LladaConfig& config, const nn::Weights& weights, const nn::Portion& portion,
        DType dtype);

  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return dtype_; }
  int64_t vocabulary() const override { return config_.vocabulary; }

  nn::PlacementPtr place(const nn::TokenView& view) const override;
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView& view) const override;
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                const nn::Segments& of) const override;

 private:
  struct Block {
    Tensor attention_norm, feed_norm, q_norm, k_norm;
    nn::Linear q, k, v, qkv, out;  // q, k and v separate, or fused in qkv
    int expert_site = -1;
    nn::Router router;
    nn::ExpertWeights experts;
    ops::Expert dense;
  };
  Block load_block(const nn::Weights& weights, int64_t index, const nn::Portion& portion) const;
  void load_attention(const nn::Weights& weights, const std::string& name, Block& block) const;
  void load_experts(const nn::Weights& weights, int64_t index, const nn::Portion& portion,
                    Block& block) const;
  nn::Qkv heads_of(const Block& block, const Tensor& x, const ops::RotaryTable& rotary) const;
  Tensor normed(const Tensor& x, const Tensor& weight, int64_t width = 0) const;

  LladaConfig config_;
  DType dtype_;
  nn::Geometry geometry_;
  nn::Range blocks_;
  Tensor embedding_, final_norm_;
  ops::Weight head_;
  std::vector<Block> layers_;
};

/// Loads a routed expert of a block with experts, in `dtype`.
ops::Expert load_routed_expert(const LladaConfig& config, const nn::Weights& weights, int64_t block,
                               int64_t expert, DType dtype);

}  // namespace tessera::models
