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

/// The tokens of a call: mine. A patch of -1 means the tokens of all patches.
struct TokenView {
  int patch = -1;
  std::vector<int> sequences;
  Segments prefix, body;           ///< text, latent
  std::vector<int64_t> lengths{};  ///< token models: all tokens of the sequence of each segment
  SequencePeers* peers = nullptr;  ///< ranks with other tokens of these sequences; null: none
  /// Canvas models (DiffusionGemma): where the canvas of each segment begins. Its tokens see each
  /// other and the text before it. Empty: the segments are text.
  std::vector<int64_t> canvas{};
};

/// Sizes of a request: guidance branches x images, text tokens a sequence, latent grid (frames,
/// height, width in tokens).
struct TokenShape {
  int batch = 0;
  int64_t prefix = 0;
  std::array<int64_t, 3> grid{};
  int64_t tokens() const { return grid[0] * grid[1] * grid[2]; }
};

struct StepInfo {
  int index = 0, count = 0;
  bool fresh = true;       ///< everything read in this step is computed in it
  bool next_fresh = true;  ///< what is launched now for the next step would never be read
};

/// One attention of a model: a block may have two.
struct AttentionSite {
  int block = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool joint = false;           ///< text takes part
  bool prefix_queries = false;  ///< text asks too
  int causal_block = 0;         ///< 0: all see all; else blocks of so many tokens see earlier ones
  int64_t window = 0;  ///< a token sees so many up to itself, a canvas one fewer before it; 0: all
  float scale = 0;     ///< of q k^T; 0: 1 / sqrt(head_dim)
};

/// One MoE layer of a model; its place among them is the `site` of Experts::apply.
struct ExpertSite {
  int block = 0, experts = 0, top_k = 0;
  int64_t inner = 0;
};

/// What parallel methods and the planner need to know of a model.
struct Geometry {
  int blocks = 0;
  std::vector<AttentionSite> attention;
  std::vector<ExpertSite> experts;
  std::vector<int> skip_from;  ///< per block: the block whose output it reads too, or -1
  int64_t hidden = 0, channels_in = 0, channels_out = 0;
  std::array<int64_t, 3> patch_size{1, 1, 1};
  bool norm_over_heads = false;  ///< a q/k norm spans heads: they cannot be split

  Shard shard{};  ///< whose heads and widths of experts these are

  /// Of a shard of the whole.
  Geometry of(const Shard& one) const {
    const auto mine = [&](int64_t size) { return split({0, size}, one.count, one.index).size(); };
    Geometry part = *this;
    part.shard = one;
    for (AttentionSite& site : part.attention) {
      site.heads = static_cast<int>(mine(site.heads));
      site.kv_heads = static_cast<int>(mine(site.kv_heads));
    }
    for (ExpertSite& site : part.experts) site.inner = mine(site.inner);
    return part;
  }
};

/// Queries, keys and values of some tokens: [tokens, heads * head_dim] each; may be undefined.
struct Qkv {
  Tensor q, k, v;
};

/// The streams of text and latent.
struct Joint {
  Tensor prefix, body;
  Tensor both{};  ///< text first, where the two are parts of one tensor
};

/// All that travels between stages; long skips by source block.
struct Hidden {
  Joint tokens;
  std::map<int, Tensor> skips;
};

/// Steps of a request as a strategy sees them.
class StepAware {
 public:
  virtual ~StepAware() = default;
  virtual void begin_step(const StepInfo& info) { step_ = info; }
  /// Waits; afterwards nothing is pending.
  virtual void finish() {}

 protected:
  StepInfo step_;
};

/// The attention of a block, wherever its keys are.
class Attention : public StepAware {
 public:
  /// Heads of the tokens of view.body, of a joint site those of view.prefix before them (queries of
  /// the text only if it asks). What the queries see, in their order.
  virtual Tensor attend(int site, const TokenView& view, const Qkv& heads) = 0;
};

/// The experts of a layer, wherever they are: routed and shared.
class Experts : public StepAware {
 public:
  /// tokens [tokens, hidden] -> the same shape. Gets the router, not a routing: a fused operator
  /// runs the gate itself.
  virtual Tensor apply(int site, const TokenView& view, const Tensor& tokens, const Router& router,
                       const ExpertWeights& weights) = 0;
};

/// Sums products that are split along their inputs, over the ranks that have a part each: the same
/// bits on all of them.
class Reduce {
 public:
  /// Some rows of this rank's part, f32 [rows, n]: each the same whatever rows are asked with it.
  using Part = std::function<Tensor(Range rows)>;
  /// What becomes of some rows of the sum (bias, gate, residual): [rows, n] of the result's dtype.
  using Finish = std::function<Tensor(const Tensor& sum, Range rows)>;
  virtual ~Reduce() = default;
  /// -> the finished sum [rows, n]. A row's part is asked for once, and it is finished on whatever
  /// rank.
  virtual Tensor sum(int64_t rows, const Part& part, const Finish& finish) = 0;
};

/// Blocks whose weights ranks share: of the bytes of each, this rank has a run.
struct SpreadBlocks {
  Range blocks;              ///< of the stack, or of the rank's stage of it
  std::vector<Tensor> mine;  ///< u8, of each of them; the runs of the ranks stand behind each other
  std::vector<int64_t> whole;  ///< bytes of all runs, of each of them
};

/// Brings together weights that are spread over ranks.
class Gather {
 public:
  virtual ~Gather() = default;
  /// All bytes of a block, u8; who holds them keeps them. Blocks are asked for in order, pass by
  /// pass, on all ranks alike; those of the next one travel meanwhile.
  virtual Tensor bytes(int block, const SpreadBlocks& of) = 0;
  /// All bytes, u8, of something besides the blocks, when it is used: each rank has a run of them,
  /// this one `mine`. Asked for on all ranks alike.
  virtual Tensor whole(const Tensor& mine, std::span<const Range> runs) = 0;
};

/// What a model may ask of the world outside its rank.
struct Seams {
  Attention& attention;
  Experts& experts;
  Reduce* reduce = nullptr;  ///< of row-split products; null: weights are whole
  Gather* gather = nullptr;  ///< of blocks that are spread; null: they are here
};

}  // namespace tessera::nn
