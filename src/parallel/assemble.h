#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"
#include "nn/seams.h"
#include "parallel/experts/scheduled.h"
#include "parallel/partition.h"
#include "parallel/turns.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Why a plan cannot run a model, one sentence each; empty: it can.
std::vector<std::string> problems(const Plan& plan, const nn::Geometry& geometry,
                                  const Workload& workload);

/// Whether expert rows pass an exchange under a plan, if only with the rank itself.
bool shares_experts(const Plan& plan);

/// The strategies of one rank for one request. State between steps lives here.
struct Assembly {
  /// The geometry and the communicator must outlive it. `ranks` may be null for a plan of one rank.
  /// Throws Error(plan) for a plan that cannot run.
  Assembly(const nn::Geometry& geometry, const Plan& plan, const Workload& workload,
           comm::Communicator* ranks = nullptr);
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  Plan plan;
  comm::Communicator* world;  ///< null: one rank
  int rank;
  Partition partition;
  tensor::Device device = tensor::Device::cpu;  ///< of the model and, in a run, of the latent
  nn::Range blocks;                             ///< of my stage
  std::unique_ptr<comm::Communicator> expert_group, token_group;
  std::unique_ptr<nn::Attention> attention;
  std::unique_ptr<nn::MoeLayers> experts;
  std::unique_ptr<Turns> turns;           ///< of a staggered batch: of its halves
  std::unique_ptr<nn::MoeLayers> second;  ///< experts of the second half
  bool fixed_weights = false;  ///< weights stay where they are, from the first step to the last

  /// My tokens.
  nn::TokenView view() const { return partition.view(rank); }
  nn::TokenShape shape() const { return partition.shape(rank); }
  /// Of the first half of a staggered batch, or the second; else of all rows.
  nn::Seams seams(int half = 0) const { return {*attention, half == 0 ? *experts : *second}; }
  void begin_step(const nn::StepInfo& info);
  void finish();
  /// Whether a step's work on the device is the same in every step, so that it can be recorded: no
  /// other rank takes part, nothing is stale, and nobody watches.
  bool may_record() const;
  /// What the experts did, call by call.
  std::vector<nn::MoeEvent> expert_events() const;
  /// The most bytes of expert rows that were kept between layers, steps or halves.
  int64_t peak_kept_bytes() const;
};

}  // namespace tessera::parallel
