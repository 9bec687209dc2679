#pragma once

#include <memory>
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
#include "parallel/sequence/group_peers.h"
#include "parallel/stages.h"
#include "parallel/tensor/block_gather.h"
#include "parallel/turns.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Why a plan cannot run a request on a model, samples or text, one sentence each; empty: it can.
/// A layer that is too narrow for tensor= is named by the model, when a shard of it is built.
std::vector<std::string> problems(const Plan& plan, const nn::Geometry& geometry,
                                  const Workload& workload);
/// Throws Error(plan) with them.
void require_runnable(const Plan& plan, const nn::Geometry& geometry, const Workload& workload);

/// What a rank builds of a model: the blocks of its stage, with the experts or the shard that are
/// its.
nn::Portion portion_of(const Plan& plan, const nn::Geometry& geometry, int rank);

/// Whether expert rows pass an exchange under a plan, if only with the rank itself.
bool shares_experts(const Plan& plan);
/// Whether ranks of a plan can read experts when tokens go to them: one alone, or those that share
/// experts and nothing else.
bool reads_experts(const Plan& plan);
/// The most experts that a token goes to; `rule`: of a language model, else null.
int most_slots(const nn::Geometry& geometry, const nn::SelectionRule* rule);

/// Where the weights of a rank's model are.
struct Residence {
  tensor::Device device = tensor::Device::cpu;  ///< in a run of samples, of the latent too
  bool fixed = false;  ///< they stay where they are, from the first step to the last
  /// Of routed experts that are read when tokens go to them, all or the rank's own; null: the model
  /// has them.
  std::shared_ptr<nn::ExpertCache> experts{};
};

/// The strategies of one rank for one request, for samples or text. State between steps and passes
/// lives here.
struct Setup {
  /// `geometry`: of what the rank has built; it and `ranks` must outlive this. `ranks` may be null
  /// for a plan of one rank. Throws Error(plan) for a plan that cannot run.
  Setup(const Plan& plan, const nn::Geometry& geometry, const Workload& workload,
        comm::Communicator* ranks = nullptr, const Residence& residence = {});
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  Plan plan;
  comm::Communicator* world;  ///< null: one rank
  int rank;
  Partition partition;  ///< of text: of the pass that has begun
  Residence residence;
  nn::Range blocks;  ///< of my stage
  Stages stages;
  std::unique_ptr<comm::Communicator> expert_group, tensor_group, weight_group;
  std::unique_ptr<comm::Communicator> branch_group;  ///< of cfg=2: a branch of guidance each
  /// Of the tokens of a sequence: of distrifusion= or of text; and of ring= and ulysses=.
  std::unique_ptr<comm::Communicator> token_group, ring_group, head_group;
  std::unique_ptr<nn::Attention> attention;
  nn::KvAttention* cache = nullptr;     ///< what keeps keys and values within it; null: nothing
  std::unique_ptr<nn::Reduce> reduce;   ///< null: weights are whole
  std::unique_ptr<BlockGather> gather;  ///< of shard=; null: blocks are here
  std::shared_ptr<nn::SelectionPolicy> policy;  ///< of text: who chooses its experts
  std::unique_ptr<nn::MoeLayers> experts;
  std::unique_ptr<Turns> turns;           ///< of a staggered batch: of its halves
  std::unique_ptr<nn::MoeLayers> second;  ///< experts of the second half
  std::unique_ptr<GroupPeers> peers;      ///< of text: ranks that hold other tokens of a pass

  /// My tokens.
  nn::TokenView view(int patch = -1) const;
  nn::TokenShape shape() const { return partition.shape(rank); }
  /// Of the first half of a staggered batch, or the second; else of all sequences.
  nn::Seams seams(int half = 0) const {
    return {*attention, half == 0 ? *experts : *second, reduce.get(), gather.get()};
  }
  void begin_step(const nn::StepInfo& info);
  /// Before a call of the network, for a patch or for all tokens; whether another one follows.
  void begin_call(bool another);
  /// The same for a pass over text: its tokens, on every rank alike.
  void begin_pass(int index, nn::TokenView pass);
  void finish();
  /// Whether to begin another step or pass; rank 0 decides, so that all ranks stop before the same.
  bool go_on(const std::stop_token& stop) const;
  /// Whether a step's work on the device is the same in every step, so that it can be recorded: no
  /// other rank takes part, nothing is stale, and nobody watches.
  bool may_record() const;
  /// What the experts did, call by call.
  std::vector<nn::MoeEvent> expert_events() const;
  /// The most bytes of expert rows that were kept between layers, steps or halves.
  int64_t peak_kept_bytes() const;

 private:
  /// Of the ranks that differ from me along an axis; null: I am the only one.
  std::unique_ptr<comm::Communicator> along(std::string_view axis) const;
  /// Of any rank that shares experts with me, in a call.
  int64_t most_tokens(const Workload& workload) const;
  void share_blocks(const nn::Geometry& geometry);
  void share_tokens(const nn::Geometry& geometry, const Workload& workload);
  void share_experts(const nn::Geometry& geometry, const Workload& workload);
};

}  // namespace tessera::parallel
