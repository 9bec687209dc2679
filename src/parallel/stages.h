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

/// How many blocks each of so many stages has, by the FLOPs and the bytes of each block: the
/// largest stage has as few bytes as it can where the slowest one has at most 15 % more FLOPs than
/// it need have, and then it has as few as it can. At least as many blocks as stages.
std::vector<int> balanced_stages(const std::vector<double>& flops, const std::vector<double>& bytes,
                                 int stages);
/// The blocks of each stage of a plan that can run: those it names, or equal numbers.
std::vector<nn::Range> blocks_of_stages(const Plan& plan, int blocks);

/// What a stage of pipefusion=N (Fang et al. 2024) is handed, and hands on: the stream of some
/// tokens goes to the next stage, a long skip straight to the one that reads it, the latent that
/// comes of them from the last stage to the first. A receive is started before its message is
/// waited for: that of the stream one call ahead, that of a latent before its tokens leave. So a
/// stage expects two calls' tokens, a faster one before it may have sent more of a step, and no
/// send waits for one that waits for it.
class Stages {
 public:
  /// One stage, which is handed nothing.
  Stages() = default;
  /// `group`: the ranks of the stages, in their order; null: one. What it stands on outlives this.
  Stages(const nn::Geometry& geometry, std::vector<nn::Range> blocks,
         std::unique_ptr<comm::Communicator> group);

  bool first() const { return !group_ || group_->rank() == 0; }
  bool last() const { return !group_ || group_->rank() + 1 == group_->size(); }

  /// A call of the stage's blocks begins; whether another one follows.
  void begin(bool another);
  /// The stream of the tokens of this call. Not of the first stage.
  nn::Hidden arrived(const nn::TokenView& view);
  /// Before a block: the skip that it reads from another stage.
  void bring(int block, nn::Hidden& hidden);
  /// After a block: its output goes to the stage that reads it, if that is another one.
  void leave(int block, nn::Hidden& hidden);
  /// To the next stage. Not of the last stage.
  void hand_on(const nn::Hidden& hidden);

  /// Of the first of several stages: this call's tokens will come back with the latent after this
  /// step.
  void expect_latent(int step, int patch);
  /// Of the last one.
  void return_latent(const nn::Tensor& rows);
  /// A latent that came back.
  struct Returned {
    int patch;
    nn::Tensor rows;
  };
  /// The next latent that the first stage needs before it runs a patch in a step; none: it has all.
  std::optional<Returned> latent_before(int step, int patch);

 private:
  /// Of one call.
  struct Arriving {
    std::map<int, comm::Pending> skips;  // by the block that made it
    comm::Pending stream;
  };
  struct Returning {
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
  std::deque<Arriving> arriving_;       // of this call until it has arrived, and of the next one
  std::map<int, comm::Pending> skips_;  // of this call
  std::deque<Returning> returning_;
};

}  // namespace tessera::parallel
