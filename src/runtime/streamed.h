#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "nn/block_stack.h"
#include "nn/weights.h"

namespace tessera::runtime {

/// Provides the weights of a block when the block runs.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual std::shared_ptr<const nn::Weights> weights(int block, const nn::Seams& seams) const = 0;
};

/// A transformer whose blocks stand apart from the modules around them (the shell), for blocks that
/// come later.
class ShellDenoiser : public nn::Denoiser {
 public:
  explicit ShellDenoiser(std::unique_ptr<nn::Denoiser> shell) : shell_(std::move(shell)) {}

  const nn::Geometry& geometry() const override { return shell_->geometry(); }
  nn::DType dtype() const override { return shell_->dtype(); }
  std::string block_name(int index) const override { return shell_->block_name(index); }
  nn::ContextPtr prepare(const nn::Conditioning& conditioning,
                         const nn::TokenShape& shape) const override {
    return shell_->prepare(conditioning, shape);
  }
  nn::PlacementPtr place(const nn::Context& context, const nn::TokenView& view) const override {
    return shell_->place(context, view);
  }
  nn::StepContextPtr at(const nn::Context& context, const nn::Tensor& timestep) const override {
    return shell_->at(context, timestep);
  }
  nn::Hidden embed(const nn::Placement& placement, const nn::Tensor& latent) const override {
    return shell_->embed(placement, latent);
  }
  nn::Tensor head(const nn::StepContext& step, const nn::Placement& placement,
                  const nn::Hidden& hidden) const override {
    return shell_->head(step, placement, hidden);
  }
  nn::Reusable reusable() const override { return shell_->reusable(); }

 protected:
  const nn::Denoiser& shell() const { return *shell_; }

 private:
  std::unique_ptr<nn::Denoiser> shell_;
};

/// A transformer too large for memory. The modules around the blocks and the first `resident`
/// blocks stay in memory; every other block is built just before use, from the file or from the
/// ranks' runs, and released afterwards. Results equal the whole transformer's bit by bit. Const
/// and thread-safe.
class StreamedDenoiser : public ShellDenoiser {
 public:
  /// Packs blocks from the file. The spec must outlive the object. `experts`: dtype of routed
  /// experts' weights, if different from `dtype`.
  StreamedDenoiser(const models::PipelineSpec& spec,
                   const std::shared_ptr<const nn::Weights>& weights, nn::DType dtype,
                   int64_t resident, std::optional<nn::DType> experts = {});
  /// A rank's portion with blocks from another source, and the modules around the blocks.
  StreamedDenoiser(const models::PipelineSpec& spec, nn::DType dtype, const nn::Portion& portion,
                   std::shared_ptr<const BlockSource> blocks, std::unique_ptr<nn::Denoiser> shell);

  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  nn::Tensor first_input(const nn::StepContext& step, const nn::Placement& placement,
                         const nn::Hidden& hidden, const nn::Seams& seams) const override;

 private:
  const models::PipelineSpec& spec_;
  nn::DType dtype_;
  nn::Portion portion_;
  int64_t resident_;
  std::shared_ptr<const BlockSource> blocks_;
  tensor::PageReuse reuse_;
};

/// The modules around the blocks of a portion, and its first `resident` blocks.
nn::Portion shell_of(nn::Portion portion, int64_t resident = 0);
/// A single block of a portion; finds everything that blocks share in context, placement and step.
nn::Portion one_block(nn::Portion portion, int64_t index);

/// Bytes of a portion's weights, which may be on meta.
int64_t weight_of(const models::PipelineSpec& spec, nn::DType dtype, const nn::Portion& portion,
                  const nn::Weights& weights);

/// Bytes of a transformer's parts in memory; found on meta.
struct PartWeights {
  int64_t fixed = 0;            ///< before and after the blocks
  std::vector<int64_t> blocks;  ///< for each block
  int64_t whole() const;
  /// Bytes of the largest block from `first` on.
  int64_t largest(int64_t first) const;
};
PartWeights part_weights(const models::PipelineSpec& spec, nn::DType dtype,
                         std::optional<nn::DType> experts = {});
/// Bytes of the parts over weights on meta that know their packed form.
PartWeights part_weights(const models::PipelineSpec& spec, nn::DType dtype,
                         std::optional<nn::DType> experts, const nn::Weights& weights);

/// The number of blocks that may stay in `room` bytes while the others are streamed one at a time;
/// all blocks if they fit, -1 if even streaming does not fit.
int64_t resident_blocks(const PartWeights& parts, int64_t room);

}  // namespace tessera::runtime
