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

/// A rank's part of a model; blocks are [begin, end).
struct Portion {
  Range blocks;
  bool embed = true, head = true;
  bool conditioning = true;     ///< the weights of prepare and at, for the blocks of any portion
  std::vector<bool> experts{};  ///< in each layer; empty: all
  Shard shard{};
  std::optional<DType> expert_dtype{};  ///< type of routed experts' weights (i8); none: the model's

  bool holds_expert(int64_t expert) const {
    return experts.empty() || experts.at(static_cast<size_t>(expert));
  }
};

/// Inputs of a request, under the argument names of the reference implementation (class labels i32
/// "y" [batch], "encoder_hidden_states", ...).
struct Conditioning {
  std::map<std::string, Tensor> tensors;
};

/// Values derived by each block from a context: computed once, at the first use, for any split of
/// the blocks into portions.
template <class T>
class PerBlock {
 public:
  template <class Make>
  const T& of(int block, const Make& make) const {
    const std::lock_guard lock(mutex_);
    const auto it = made_.find(block);
    return it != made_.end() ? it->second : made_.emplace(block, make()).first->second;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<int, T> made_;
};

/// Results of a model's preparation of a request (positions, projected text); each model derives
/// its own. Shared by all portions of the model.
class Context {
 public:
  virtual ~Context() = default;
};
using ContextPtr = std::shared_ptr<const Context>;

/// Places of the tokens of a view, for blocks (their sequences, their rotary angles); each model
/// derives its own. Shared by all portions of the model.
class Placement {
 public:
  explicit Placement(TokenView of) : view(std::move(of)) {}
  virtual ~Placement() = default;
  const TokenView view;
};
using PlacementPtr = std::shared_ptr<const Placement>;

/// Results of a model's preparation of a step (modulations); each model derives its own, token
/// models none. Shared by all portions of the model.
class StepContext {
 public:
  virtual ~StepContext() = default;
};
using StepContextPtr = std::shared_ptr<const StepContext>;

/// A stack of blocks with seams for everything outside the rank.
class BlockStack {
 public:
  virtual ~BlockStack() = default;
  virtual const Geometry& geometry() const = 0;
  virtual DType dtype() const = 0;
  /// The name of the hidden states after block `index` in traces.
  virtual std::string block_name(int index) const { return "block." + std::to_string(index); }
  /// Runs block `index` on the tokens of a placement, in place of `hidden`.
  virtual void block(int index, const StepContext& step, const Placement& placement, Hidden& hidden,
                     const Seams& seams) const = 0;
};

/// The blocks of a denoiser for step caches.
struct Reusable {
  int first = 0;        ///< earlier blocks refine the embedding and always run
  bool joined = false;  ///< these blocks see text and latent as a single stream
};

/// A diffusion transformer over latent tokens [tokens, C * pt * p * q], channel slowest.
class Denoiser : public BlockStack {
 public:
  /// This model for a request whose ranks gather weights around the blocks; null: no gather is
  /// needed. Must not outlive this model or the gather.
  virtual std::unique_ptr<Denoiser> with(Gather&) const { return nullptr; }
  /// Called once for a request. Throws Error(usage) for invalid conditioning or sizes.
  virtual ContextPtr prepare(const Conditioning& conditioning, const TokenShape& shape) const = 0;
  /// Called once for each view (all tokens, or a patch). The context must outlive the result.
  virtual PlacementPtr place(const Context& context, const TokenView& view) const = 0;
  /// Once a step: timestep f32 [batch], as the scheduler feeds it. The context outlives it.
  virtual StepContextPtr at(const Context& context, const Tensor& timestep) const = 0;
  /// latent f32 [tokens of the body, C * pt * p * q] -> the hidden states for the blocks.
  virtual Hidden embed(const Placement& placement, const Tensor& latent) const = 0;
  /// -> prediction f32 [tokens, channels_out * pt * p * q], channel slowest.
  virtual Tensor head(const StepContext& step, const Placement& placement,
                      const Hidden& hidden) const = 0;
  virtual Reusable reusable() const { return {}; }
  /// The modulated input of the first reusable block [tokens, hidden], read by TeaCache. Throws
  /// Error(usage) for models without one.
  virtual Tensor first_input(const StepContext& step, const Placement& placement,
                             const Hidden& hidden, const Seams& seams) const;
};

/// Logits of an earlier pass over some tokens, for the next pass (self-conditioning, Chen et al.
/// 2023).
struct EarlierLogits {
  Segments tokens{};  ///< tokens with logits; possibly none of a sequence
  Tensor logits{};    ///< f32 [tokens, vocabulary], divided by the temperature of their pass
};

/// A language model over token ids with predictions for all positions at once (masked diffusion;
/// LLaDA, Nie et al. 2025).
class TokenModel : public BlockStack {
 public:
  virtual int64_t vocabulary() const = 0;
  /// Called once for a forward pass; the StepContext of token models is empty.
  virtual PlacementPtr place(const TokenView& view) const = 0;
  /// ids of the tokens of view.body, in packed order -> the hidden states for the blocks. Throws
  /// Error(usage) for an id outside the vocabulary.
  virtual Hidden embed(std::span<const int32_t> ids, const TokenView& view) const = 0;
  /// The same for tokens of a canvas (view.canvas), in canvas models. `earlier` may hold more
  /// tokens than the view. Throws Error(usage) for other models.
  virtual Hidden embed_canvas(std::span<const int32_t> ids, const TokenView& view,
                              const EarlierLogits& earlier) const;
  /// -> f32 [tokens of `of`, vocabulary]; `of` are parts of view.body, in its order.
  virtual Tensor logits(const Hidden& hidden, const TokenView& view, const Segments& of) const = 0;
};

}  // namespace tessera::nn
