#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/streamed.h"
#include "tensor/storage.h"

namespace tessera::runtime {

/// A transformer that loads while it computes: each block is read and packed by all threads when
/// the first step reaches it, and stays. Results equal the whole transformer's bit by bit. The
/// memory of later blocks counts from the start. Const and thread-safe; a damaged file is an error
/// of the first step.
class LoadingDenoiser final : public ShellDenoiser {
 public:
  /// Loads the modules around the blocks. The spec must outlive the object. `portion`: of a single
  /// rank, with all blocks. `meta`: describes the weights.
  LoadingDenoiser(const models::PipelineSpec& spec, std::shared_ptr<const nn::Weights> weights,
                  const nn::Weights& meta, nn::DType dtype, const nn::Portion& portion);
  ~LoadingDenoiser() override;
  /// Seconds in which steps have loaded blocks, of all requests.
  double loading_seconds() const { return seconds_; }
  /// Loads the missing blocks.
  void load_all() const;

  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  nn::Tensor first_input(const nn::StepContext& step, const nn::Placement& placement,
                         const nn::Hidden& hidden, const nn::Seams& seams) const override;

 private:
  struct Slot {
    std::mutex loading;  // held while loading, so that each block is loaded once
    std::unique_ptr<const nn::Denoiser> part;
    int64_t expected = 0;  // bytes counted in advance
  };
  const nn::Denoiser& part(int index) const;
  void load(int index, Slot& slot) const;
  void count(int64_t bytes) const;

  const models::PipelineSpec& spec_;
  nn::DType dtype_;
  nn::Portion portion_;
  std::shared_ptr<tensor::MemoryTracker> memory_;  // null: not counted
  mutable std::vector<Slot> slots_;
  mutable std::atomic<int64_t> missing_;
  mutable std::atomic<double> seconds_ = 0;
  mutable std::shared_ptr<const nn::Weights> weights_;  // null after the last block
};

/// The same network with all blocks in memory, where other networks find their weights.
std::shared_ptr<const nn::Denoiser> with_all_blocks(std::shared_ptr<const nn::Denoiser> network);

}  // namespace tessera::runtime
