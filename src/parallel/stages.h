#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// The number of blocks of each stage, from the FLOPs and bytes of each block: the largest stage
/// has as few bytes as possible while the slowest has at most 15 % more FLOPs than necessary, then
/// as few FLOPs as possible. At least as many blocks as stages.
std::vector<int> balanced_stages(const std::vector<double>& flops, const std::vector<double>& bytes,
                                 int stages);
/// The blocks of each stage of a valid plan: as named, or in equal numbers.
std::vector<nn::Range> blocks_of_stages(const Plan& plan, int blocks);

/// Inputs and outputs of a stage under pipefusion=N (Fang et al. 2024): hidden states go to
/// the next stage, a long skip directly to its reader, the new latent from the last stage
/// to the first. A receive starts before its message is waited for: for hidden states a
/// call ahead, for a latent before its tokens leave. So a stage expects the tokens of two
/// calls, a faster stage before may have sent more of a step, and no two sends wait for
/// each other.
class Stages {
 public:
  /// A single stage without messages.
  Stages() = default;
  /// `group`: the ranks of the stages, in order; null: a single rank. Arguments must live longer.
  Stages(const nn::Geometry& geometry, std::vector<nn::Range> blocks,
         std::unique_ptr<comm::Communicator> group);

  bool first() const { return !group_ || group_->rank() == 0; }
  bool last() const { return !group_ || group_->rank() + 1 == group_->size(); }

  /// Starts a call of the stage's blocks; `call_follows`: another call comes.
  void begin(bool call_follows);
  /// The incoming hidden states for this call. Not for the first stage.
  nn::Hidden arrived(const nn::TokenView& view);
  /// Before a block: receives the skip from another stage.
  void bring(int block, nn::Hidden& hidden);
  /// After a block: sends a skip to its reader on another stage, if any.
  void leave(int block, nn::Hidden& hidden);
  /// Sends to the next stage. Not for the last stage.
  void hand_on(const nn::Hidden& hidden);

  /// For the first of several stages: this call's tokens return with the latent after this
  /// step.
  void expect_latent(int step, int patch);
  /// For the last stage.
  void return_latent(const nn::Tensor& rows);
  /// A returned latent.
  struct ReturnedLatent {
    int patch;
    nn::Tensor rows;
  };
  /// The next latent needed by the first stage before a patch in a step; none: complete.
  std::optional<ReturnedLatent> latent_before(int step, int patch);

 private:
  /// Messages of a call.
  struct Arrivals {
    std::map<int, comm::Pending> skips;  // by producing block
    comm::Pending stream;
  };
  struct PendingLatent {
    int step, patch;
    comm::Pending rows;
  };
  int stage_of(int block) const;
  int reader_of(int block) const;
  void expect();

  std::vector<int> skip_from_;
  bool joint_ = false;
  std::vector<nn::Range> blocks_;
  std::unique_ptr<comm::Communicator> group_;
  std::deque<Arrivals> arrivals_;       // this call's until received, and the next call's
  std::map<int, comm::Pending> skips_;  // in this call
  std::deque<PendingLatent> pending_latents_;
};

}  // namespace tessera::parallel
