#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/moe/expert_weights.h"
#include "nn/moe/router.h"
#include "nn/moe/sequence_peers.h"
#include "nn/segments.h"
#include "nn/split.h"
#include "tensor/tensor.h"

namespace tessera::nn {

using tensor::DType;
using tensor::Tensor;

/// The own tokens of a call. A patch of -1 means the tokens of all patches.
struct TokenView {
  int patch = -1;
  std::vector<int> sequences;
  Segments prefix, body;           ///< text, latent
  std::vector<int64_t> lengths{};  ///< token models: all tokens of the sequence of each segment
  SequencePeers* peers = nullptr;  ///< ranks with other tokens of these sequences; null: none
  /// Canvas models (DiffusionGemma): the begin of each segment's canvas. Its tokens see each other
  /// and the text before. Empty: the segments are text.
  std::vector<int64_t> canvas{};
};

/// Sizes of a request: guidance branches x images, text tokens of the longest sequence, latent grid
/// (frames, height, width in tokens), tokens behind it (TokenLayout::extra).
struct TokenShape {
  int batch = 0;
  int64_t prefix = 0;
  std::array<int64_t, 3> grid{};
  int64_t extra = 0;
  int64_t latent_tokens() const { return grid[0] * grid[1] * grid[2]; }
  int64_t tokens() const { return latent_tokens() + extra; }
};

struct StepInfo {
  int index = 0, count = 0;
  bool fresh = true;       ///< all data read in this step is fresh
  bool next_fresh = true;  ///< the next step reads no data sent in this step
};

/// An attention of a model; a block may have two.
struct AttentionSite {
  int block = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool joint = false;           ///< text takes part
  bool prefix_queries = false;  ///< text has queries, too
  int causal_block = 0;         ///< 0: all see all; else blocks of this size see earlier ones
  int64_t window = 0;           ///< tokens seen up to itself, by a canvas before itself; 0: all
  float scale = 0;              ///< scale of q k^T; 0: 1 / sqrt(head_dim)
};

/// An MoE layer of a model; its place in the list is the `site` of Experts::apply.
struct ExpertSite {
  int block = 0, experts = 0, top_k = 0;
  int64_t inner = 0;
};

/// Properties of a model for parallel methods and the planner.
struct Geometry {
  int blocks = 0;
  std::vector<AttentionSite> attention;
  std::vector<ExpertSite> experts;
  std::vector<int> skip_from;  ///< for each block: a second input block, or -1
  int64_t hidden = 0, channels_in = 0, channels_out = 0;
  std::array<int64_t, 3> patch_size{1, 1, 1};
  bool norm_over_heads = false;  ///< a q/k norm spans heads: no split

  Shard shard{};  ///< the shard behind these heads and expert widths

  /// For a shard of the whole.
  Geometry of(const Shard& rank_shard) const {
    const auto own_size = [&](int64_t size) {
      return split({0, size}, rank_shard.count, rank_shard.index).size();
    };
    Geometry part = *this;
    part.shard = rank_shard;
    for (AttentionSite& site : part.attention) {
      site.heads = static_cast<int>(own_size(site.heads));
      site.kv_heads = static_cast<int>(own_size(site.kv_heads));
    }
    for (ExpertSite& site : part.experts) site.inner = own_size(site.inner);
    return part;
  }
};

/// Queries, keys and values of some tokens: [tokens, heads * head_dim] each; may be undefined.
struct Qkv {
  Tensor q, k, v;
};

/// The hidden states of text and latent.
struct Joint {
  Tensor prefix, body;
  Tensor both{};  ///< text first, if both are parts of a tensor
};

/// All data between stages; long skips by source block.
struct Hidden {
  Joint tokens;
  std::map<int, Tensor> skips;
};

/// Steps of a request, for strategies.
class StepAware {
 public:
  virtual ~StepAware() = default;
  virtual void begin_step(const StepInfo& info) { step_ = info; }
  /// Waits until nothing is pending.
  virtual void finish() {}

 protected:
  StepInfo step_;
};

/// The attention of a block, with keys on any rank.
class Attention : public StepAware {
 public:
  /// Heads of the tokens of view.body, at a joint site those of view.prefix before them (text
  /// queries only with prefix_queries). Returns the attention results in the order of the queries.
  virtual Tensor attend(int site, const TokenView& view, const Qkv& heads) = 0;
  /// False if the next attend() of a site knows its result: heads may be undefined then.
  virtual bool needs_heads(int) const { return true; }
};

/// The experts of a layer, on any rank: routed and shared.
class Experts : public StepAware {
 public:
  /// tokens [tokens, hidden] -> the same shape. Gets the router, not a routing: a fused operator
  /// runs the gate itself.
  virtual Tensor apply(int site, const TokenView& view, const Tensor& tokens, const Router& router,
                       const ExpertWeights& weights) = 0;
};

/// Sums products with split inputs over the ranks with the parts: the same bits on all
/// ranks.
class Reduce {
 public:
  /// Some rows of this rank's part, f32 [rows, n], independent of other requested rows.
  using Part = std::function<Tensor(Range rows)>;
  /// Finishes rows of the sum (bias, gate, residual): [rows, n] in the result's dtype.
  using Finish = std::function<Tensor(const Tensor& sum, Range rows)>;
  virtual ~Reduce() = default;
  /// -> the finished sum [rows, n]. A row's part is requested once, and any rank may finish the
  /// row.
  virtual Tensor sum(int64_t rows, const Part& part, const Finish& finish) = 0;
};

/// Blocks with weights split over ranks: this rank has a run of each block's bytes.
struct ShardedBlocks {
  Range blocks;                ///< blocks of the stack, or of the rank's stage
  std::vector<Tensor> mine;    ///< u8, for each block; the ranks' runs are consecutive
  std::vector<int64_t> whole;  ///< bytes of all runs, for each block
};

/// Gathers weights split over ranks.
class Gather {
 public:
  virtual ~Gather() = default;
  /// All bytes of a block, u8, kept alive by the holder. Blocks are requested in order, pass by
  /// pass, on all ranks alike; the next block travels meanwhile.
  virtual Tensor bytes(int block, const ShardedBlocks& of) = 0;
  /// All bytes, u8, of a matrix besides the blocks, at its use: each rank has a run, this rank
  /// `run`. Requested on all ranks alike.
  virtual Tensor whole(const Tensor& run, std::span<const Range> runs) = 0;
};

/// A model's connections to the world outside its rank.
struct Seams {
  Attention& attention;
  Experts& experts;
  Reduce* reduce = nullptr;  ///< for row-split products; null: weights are whole
  Gather* gather = nullptr;  ///< for sharded blocks; null: blocks are local
};

}  // namespace tessera::nn
