#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "nn/block_stack.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "nn/moe/selection_policy.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Why a plan cannot spread a language model, one sentence each; empty: it can. Heads that tensor=
/// does not divide are told by the model's own parts.
std::vector<std::string> language_problems(const Plan& plan, const nn::Geometry& geometry);

/// What a rank builds of a language model: all blocks, with the experts or the shard that are its.
nn::Portion language_portion(const Plan& plan, const nn::Geometry& geometry, int rank);

/// The strategies of one rank for one request to a language model. expert=N: tokens of a pass are
/// split, experts too. tensor=N: all tokens are everywhere, every layer's weights are split.
struct LanguageAssembly {
  std::unique_ptr<nn::TokenModel> split;  ///< null: the model itself runs
  std::unique_ptr<nn::KvAttention> attention;
  std::unique_ptr<nn::Reduce> reduce;  ///< null: weights are whole
  std::shared_ptr<nn::SelectionPolicy> policy;
  std::unique_ptr<nn::MoeLayers> experts;

  nn::Seams seams() const { return {*attention, *experts, reduce.get()}; }
};

/// `model`: the rank's portion; it and `world` outlive the assembly. `world` is null for one rank.
/// `lengths`: the most tokens that each row will have.
LanguageAssembly assemble_language(const nn::TokenModel& model, const Plan& plan,
                                   const nn::SelectionRule& rule,
                                   const std::vector<int64_t>& lengths, comm::Communicator* world);

}  // namespace tessera::parallel
