#pragma once

#include <functional>
#include <vector>

#include "pipeline/plan_job.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// What a run will hold and do, found by running it.
struct Rehearsal {
  std::vector<Inspection::Rank> ranks;
  /// Bytes that this process needs: its rank, or all ranks that are its threads.
  int64_t process = 0;
};

/// An open model as it is rehearsed: weights and tensors are on meta, ranks are threads that count
/// as processes do. Experts get as many assignments as the caller's scope assumes.
void set_stage(const ModelState& state, ModelState& stage);

/// Of each routed layer.
int experts_of(const Plan& plan, const nn::Geometry& geometry, int rank);

/// Bytes that this process needs for some ranks: the largest one, if each is a process of its own;
/// else all, with the weights that they share.
int64_t process_bytes(const std::vector<Inspection::Rank>& ranks, const RunOptions& options,
                      const std::function<int64_t()>& shared_weights);

/// The denoising of a job on a stage: the network, the loop, the strategies and the messages of all
/// ranks of the plan, for as many steps as it takes until they repeat. Reads no weight. Throws
/// Error(plan) for a plan that cannot run this.
Rehearsal rehearse(const ModelState& state, const Job& job);

}  // namespace tessera::pipeline
