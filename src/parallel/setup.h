#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "nn/block_stack.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "nn/moe/selection_policy.h"
#include "parallel/experts/scheduled.h"
#include "parallel/partition.h"
#include "parallel/reuse/step_reuse.h"
#include "parallel/sequence/group_peers.h"
#include "parallel/stages.h"
#include "parallel/tensor/block_gather.h"
#include "parallel/two_batch_overlap.h"
#include "tessera/plan.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// Reasons against a plan for a request on a model, samples or text, one sentence each; empty:
/// valid. A layer too narrow for tensor= is reported later, at the construction of its shard.
std::vector<std::string> problems(const Plan& plan, const nn::Geometry& geometry,
                                  const Workload& workload);
/// Throws Error(plan) with these reasons.
void require_runnable(const Plan& plan, const nn::Geometry& geometry, const Workload& workload);

/// A rank's portion of a model: the blocks of its stage, with its experts or its
/// shard.
nn::Portion portion_of(const Plan& plan, const nn::Geometry& geometry, int rank);

/// True if expert rows pass through an exchange under a plan, even within a single rank.
bool shares_experts(const Plan& plan);
/// True if ranks of a plan may read experts on demand: a single rank, or ranks along `expert`
/// only.
bool reads_experts(const Plan& plan);
/// The most experts of a token; `rule`: for a language model, else null.
int most_slots(const nn::Geometry& geometry, const nn::SelectionRule* rule);

/// The place of a rank's weights.
struct Residence {
  tensor::Device device = tensor::Device::cpu;  ///< for samples, also the latent's device
  bool fixed = false;                           ///< weights stay in place for the whole run
  /// Routed experts read on demand, all or the rank's own; null: the model holds all
  /// experts.
  std::shared_ptr<nn::ExpertCache> experts{};
  bool for_gpu = false;  ///< a dry run of a run on a GPU
};

/// The strategies of a rank for a request, for samples or text. Owns the state between steps and
/// passes.
struct Setup {
  /// `geometry`: the rank's built portion; `geometry` and `ranks` must outlive this object. `ranks`
  /// may be null for a single rank. Throws Error(plan) for an invalid plan.
  Setup(const Plan& plan, const nn::Geometry& geometry, const Workload& workload,
        comm::Communicator* ranks = nullptr, const Residence& residence = {});
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  Plan plan;
  comm::Communicator* world;  ///< null: one rank
  int rank;
  Partition partition;  ///< for text: the current pass
  Residence residence;
  nn::Range blocks;  ///< blocks of the own stage
  Stages stages;
  std::unique_ptr<comm::Communicator> expert_group, tensor_group, weight_group;
  std::unique_ptr<comm::Communicator> branch_group;  ///< cfg=2: a guidance branch each
  /// For the tokens of a sequence: distrifusion= or text; ring= and ulysses=.
  std::unique_ptr<comm::Communicator> token_group, ring_group, head_group;
  std::unique_ptr<nn::Attention> attention;
  nn::KvAttention* cache = nullptr;             ///< cached keys and values in attention; null: none
  std::unique_ptr<nn::Reduce> reduce;           ///< null: weights are whole
  std::unique_ptr<BlockGather> gather;          ///< shard=; null: blocks are local
  std::shared_ptr<nn::SelectionPolicy> policy;  ///< for text: the rule for experts
  std::unique_ptr<nn::MoeLayers> experts;
  std::unique_ptr<TwoBatchOverlap> two_batch_overlap;  ///< staggered batch: its halves
  std::unique_ptr<nn::MoeLayers> second;               ///< experts of the second half
  std::unique_ptr<GroupPeers> peers;    ///< for text: ranks with other tokens of a pass
  std::optional<StepCache> step_cache;  ///< the request's
  /// Both branches of guidance are here, and decide apart: each has a pass of its own.
  bool branches_in_turn = false;
  /// Ranks of the same branch, if branches decide apart on ranks of their own; else null.
  std::unique_ptr<comm::Communicator> same_branch;
  /// denoise() makes them for step_cache: one, or one for each branch in turn. Empty: none.
  std::vector<std::unique_ptr<StepReuse>> reuse;

  /// The own tokens.
  nn::TokenView view(int patch = -1) const;
  nn::TokenShape shape() const { return partition.shape(rank); }
  /// For a half of a staggered batch; otherwise for all sequences.
  nn::Seams seams(int half = 0) const {
    return {*attention, half == 0 ? *experts : *second, reduce.get(), gather.get()};
  }
  void begin_step(const nn::StepInfo& info);
  /// Starts a call of the network, for a patch or all tokens; `call_follows`: another call comes.
  void begin_call(bool call_follows);
  /// The same for a text pass: its tokens, equal on every rank.
  void begin_pass(int index, nn::TokenView pass);
  void finish();
  /// True to begin another step or pass; rank 0 decides for all ranks.
  bool go_on(const std::stop_token& stop) const;
  /// True if the device work of all steps is equal and may be recorded: no other rank takes part,
  /// nothing is stale, nothing is watched.
  bool may_record() const;
  /// Events of the experts, call by call.
  std::vector<nn::MoeEvent> expert_events() const;
  /// Assignments of this rank's tokens to each expert, over all layers and calls, for each half of
  /// a staggered batch. Empty on ranks of tensor= that repeat the choice of another.
  std::vector<std::vector<int64_t>> expert_loads() const;
  /// Peak bytes of expert rows kept between layers, steps or halves.
  int64_t peak_kept_bytes() const;

 private:
  /// The ranks along an axis; null: a single rank.
  std::unique_ptr<comm::Communicator> along(std::string_view axis) const;
  /// The most tokens in a call of a rank with shared experts.
  int64_t most_tokens(const Workload& workload) const;
  void share_blocks(const nn::Geometry& geometry);
  void share_tokens(const nn::Geometry& geometry, const Workload& workload);
  void share_experts(const nn::Geometry& geometry, const Workload& workload);
  void share_decisions(const Workload& workload);
};

}  // namespace tessera::parallel
