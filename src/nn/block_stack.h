#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/seams.h"

namespace tessera::nn {

/// The part of a model that a rank builds; blocks are [begin, end).
struct Portion {
  Range blocks;
  bool embed = true, head = true;
  bool conditioning = true;     ///< what prepare and at compute with, for the blocks of any portion
  std::vector<bool> experts{};  ///< of each layer; empty: all
  Shard shard{};
  std::optional<DType> expert_dtype{};  ///< of routed experts' weights (i8); none: the model's

  bool holds_expert(int64_t expert) const {
    return experts.empty() || experts.at(static_cast<size_t>(expert));
  }
};

/// What a request asks of a model, by the argument names of the reference implementation
/// (class labels i32 "y" [batch], "encoder_hidden_states", ...).
struct Conditioning {
  std::map<std::string, Tensor> tensors;
};

/// What each block derives from a context for itself, by whoever asks first: once, however blocks
/// are cut into portions.
template <class T>
class PerBlock {
 public:
  template <class Make>
  const T& of(int block, const Make& make) const {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(block);
    return found != made_.end() ? found->second : made_.emplace(block, make()).first->second;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<int, T> made_;
};

/// What a model prepares once a request (positions, projected text); each model derives its own.
/// It serves all portions of the model.
class Context {
 public:
  virtual ~Context() = default;
};
using ContextPtr = std::shared_ptr<const Context>;

/// Where the tokens of a view stand, as blocks need it (their sequences, their rotary angles); each
/// model derives its own. It serves all portions of the model.
class Placement {
 public:
  explicit Placement(TokenView of) : view(std::move(of)) {}
  virtual ~Placement() = default;
  const TokenView view;
};
using PlacementPtr = std::shared_ptr<const Placement>;

/// What a model prepares once a step (modulations); each model derives its own, token models none.
/// It serves all portions of the model.
class StepContext {
 public:
  virtual ~StepContext() = default;
};
using StepContextPtr = std::shared_ptr<const StepContext>;

/// A stack of blocks that asks its seams for whatever may leave the rank.
class BlockStack {
 public:
  virtual ~BlockStack() = default;
  virtual const Geometry& geometry() const = 0;
  virtual DType dtype() const = 0;
  /// What traces call the stream after block `index`.
  virtual std::string block_name(int index) const { return "block." + std::to_string(index); }
  /// Runs block `index` on the tokens of a placement, in place of `hidden`.
  virtual void block(int index, const StepContext& step, const Placement& placement, Hidden& hidden,
                     const Seams& seams) const = 0;
};

/// A diffusion transformer over latent tokens [tokens, C * pt * p * q], channel slowest.
class Denoiser : public BlockStack {
 public:
  /// This model as a request uses it whose ranks bring together what stands before and after the
  /// blocks; null: all of that is here. Lives no longer than either.
  virtual std::unique_ptr<Denoiser> with(Gather&) const { return nullptr; }
  /// Once a request. Throws Error(usage) when the conditioning or the sizes do not fit.
  virtual ContextPtr prepare(const Conditioning& conditioning, const TokenShape& shape) const = 0;
  /// Once a request for each view (all tokens, or those of a patch). The context outlives it.
  virtual PlacementPtr place(const Context& context, const TokenView& view) const = 0;
  /// Once a step: timestep f32 [batch], as the scheduler feeds it. The context outlives it.
  virtual StepContextPtr at(const Context& context, const Tensor& timestep) const = 0;
  /// latent f32 [tokens of the body, C * pt * p * q] -> the stream that the blocks work on.
  virtual Hidden embed(const Placement& placement, const Tensor& latent) const = 0;
  /// -> prediction f32 [tokens, channels_out * pt * p * q], channel slowest.
  virtual Tensor head(const StepContext& step, const Placement& placement,
                      const Hidden& hidden) const = 0;
};

/// Logits of an earlier pass over some tokens, which condition the next one (self-conditioning,
/// Chen et al. 2023).
struct EarlierLogits {
  Segments tokens{};  ///< the tokens that have some; any sequence may have none
  Tensor logits{};    ///< f32 [tokens, vocabulary], divided by the temperature of their pass
};

/// A language model over token ids that predicts every position at once (masked diffusion; LLaDA,
/// Nie et al. 2025).
class TokenModel : public BlockStack {
 public:
  virtual int64_t vocabulary() const = 0;
  /// Once a forward: nothing else changes from one to the next, their StepContext is empty.
  virtual PlacementPtr place(const TokenView& view) const = 0;
  /// ids of the tokens of view.body, in packed order -> the stream that the blocks work on. Throws
  /// Error(usage) for an id outside the vocabulary.
  virtual Hidden embed(std::span<const int32_t> ids, const TokenView& view) const = 0;
  /// The same for tokens of a canvas (view.canvas), by models that denoise canvases. `earlier` may
  /// hold more tokens than the view. Throws Error(usage) for other models.
  virtual Hidden embed_canvas(std::span<const int32_t> ids, const TokenView& view,
                              const EarlierLogits& earlier) const;
  /// -> f32 [tokens of `of`, vocabulary]; `of` are parts of view.body, in its order.
  virtual Tensor logits(const Hidden& hidden, const TokenView& view, const Segments& of) const = 0;
};

}  // namespace tessera::nn
