#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "nn/block_stack.h"
#include "parallel/reuse/change.h"

namespace tessera::parallel {

/// Results of earlier steps in place of blocks: a step cache. Belongs to one rank and request; all
/// ranks decide alike. A dry run (meta) computes every step.
class StepReuse {
 public:
  /// The surroundings of a step cache: the rank's model, steps, and other ranks.
  struct Run {
    nn::Geometry geometry;
    nn::Reusable reusable;
    std::vector<float> timesteps;         ///< each step's
    comm::Communicator* world = nullptr;  ///< null: one rank
    bool counted = true;                  ///< no earlier rank holds the same tokens
    bool meta = false;
  };
  /// A pass of the network: the next step.
  struct Pass {
    const nn::Denoiser& model;
    const nn::StepContext& step;
    const nn::Placement& placement;
    const nn::Seams& seams;
    const std::function<void(int block)>& block;  ///< runs it on `hidden`
    const std::function<void(int end)>& ahead;    ///< says which blocks will run: up to `end`
    nn::Hidden& hidden;
  };

  explicit StepReuse(Run run) : run_(std::move(run)) {}
  virtual ~StepReuse() = default;

  void begin_step(int index);
  /// The attention for the blocks of this step, instead of `own`.
  virtual nn::Attention& attention(nn::Attention& own) { return own; }
  /// This step's prediction without a pass; undefined: none.
  virtual tensor::Tensor predicted() { return {}; }
  /// Runs the blocks of a pass, or reuses some.
  virtual void blocks(const Pass& pass) { run_blocks(pass, 0, end()); }
  /// The prediction of a pass.
  virtual void keep(const tensor::Tensor&) {}

  /// Results of a request. Blocks are counted from the first reusable one.
  struct Log {
    std::vector<std::vector<int>> computed;  ///< by step: blocks whose attention ran
    std::vector<double> changes;             ///< by step: the number of the decision; NaN: none
    int64_t blocks_computed = 0, blocks_reused = 0;
    double flops_saved = 0;  ///< this rank's
  };
  const Log& log() const { return log_; }

 protected:
  int step() const { return static_cast<int>(log_.computed.size()) - 1; }
  int steps() const { return static_cast<int>(run_.timesteps.size()); }
  int first() const { return run_.reusable.first; }
  int end() const { return run_.geometry.blocks; }
  /// Runs [begin, end) and notes their cost; refining blocks are not counted.
  void run_blocks(const Pass& pass, int begin, int end);
  /// Notes [begin, end) as not run.
  void skip_blocks(int begin, int end);
  /// Notes a step without a pass that cost `flops` before.
  void skip_pass(double flops);
  /// The relative change of tokens over all ranks, the same on all; notes it. Infinity on meta.
  double change(const nn::Joint& now, const nn::Joint& then);
  /// FLOPs of this rank up to now.
  static double flops_now();

  const Run run_;
  Log log_;
  /// FLOPs of a computed block, by index.
  std::map<int, double> costs_;
};

}  // namespace tessera::parallel
