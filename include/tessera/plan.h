#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Age of the experts' results: the same step, one step (interweaved) or two
/// (displaced); DICE, ICCV 2025, section 3. Adaptive: the same step for assignments
/// within the budget; others keep the last result of their expert. Staggered batch: the
/// same step; a rank's sequences form two halves, and results of one travel while the
/// other computes.
enum class ExpertSchedule { sync, interweaved, displaced, adaptive, staggered_batch };
/// Synchronous layers under a stale schedule (DICE, section 4.1).
enum class SyncLayers { none, deep, shallow, staggered, list };
/// The slot of a token sent in a step without the others (DICE, section 4.2).
enum class KeptSlot { all, low, high, random };
/// Router weights for a stale result: those of its own step, or the newest.
enum class StaleScores { stale, latest };
/// Transport of rows to experts on other ranks: two exchanges for all ranks, or tile by tile as
/// tiles become ready (fused; after FlashDMoE, Aimuyo et al. 2025). Results are equal bit by
/// bit.
enum class MoeForm { bulk, fused };
/// Ranks of the experts: neighbouring runs, in turn, or as listed.
enum class ExpertPlacement { blocks, strided, list };

/// Shape of a patch: consecutive tokens (frames, then lines), or the same lines of every
/// frame.
enum class PatchShape { runs, bands };

/// The axes along which ranks differ.
enum class PlanAxis { data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor };

/// Upper limit for the ranks of a plan.
inline constexpr int kMostRanks = 4096;

/// The distribution of a request over ranks, as numbers.
struct Plan {
  int data = 1;        ///< groups of samples
  int cfg = 1;         ///< 2: each guidance branch has its own ranks
  int pipefusion = 1;  ///< pipeline stages of blocks; patches pass through them in order
                       ///< (PipeFusion, Fang et al. 2024)
  int ring = 1;        ///< token shards with circulating keys and values (Ring Attention, Liu 2023)
  int ulysses = 1;     ///< token shards, and shards of heads inside attention (Jacobs et al. 2023)
  int tensor = 1;      ///< shards of the weights
  int distrifusion =
      1;           ///< shards of tokens with stale keys and values (DistriFusion, Li et al. 2024)
  int shard = 1;   ///< ranks that shard all weights; a block is gathered ahead of its turn, other
                   ///< matrices at their use, text encoders layer by layer (FSDP, Zhao et al. 2023,
                   ///< hybrid sharding); a rank without a sample only keeps weights
  int expert = 1;  ///< ranks that share a layer's experts; laid over the other axes
  int vae = 1;     ///< the first ranks, which decode an image together by lines
  bool vae_apart = false;  ///< additional ranks instead, behind the others, which decode while
                           ///< those denoise the next sample or request
  int warmup = 1;          ///< first steps without stale data, >= 1
  int cooldown = 0;        ///< last steps without stale data
  /// Parts of a sample that pass through the network in order after the warm-up, with the last keys
  /// and values of the other parts. 0: as many as stages.
  int patches = 0;
  PatchShape cut = PatchShape::runs;  ///< the shape of patches
  /// Parts of a sample's tokens, including text: each sees its own fresh keys and values, and those
  /// of the others from the step before (DistriFusion). A count, valid on one rank; ranks of
  /// distrifusion= hold equally many. 0: one a rank.
  int shards = 0;
  std::vector<int> stages{};  ///< blocks of each stage; empty: balanced by FLOPs and bytes
  /// First axes, outermost first; the others follow in the order of axes_of(Plan{}).
  std::vector<PlanAxis> order{};

  ExpertSchedule schedule = ExpertSchedule::sync;
  int budget = 50;  ///< adaptive: percent of the assignments sent in a step
  SyncLayers sync = SyncLayers::none;
  std::vector<int> sync_list{};  ///< layers for SyncLayers::list
  int sync_every = 0;  ///< also fresh: steps s of S with (S - s) % sync_every == 0; 0: none
  KeptSlot conditional = KeptSlot::all;
  int stride = 2;  ///< conditional: all slots are sent when (S - s) % stride == 0
  bool conditional_all_layers = true;  ///< false: asynchronous layers only
  StaleScores scores = StaleScores::stale;
  MoeForm moe = MoeForm::bulk;
  ExpertPlacement placement = ExpertPlacement::blocks;
  std::vector<int> placement_list{};  ///< ExpertPlacement::list: the rank of each expert

  /// Ranks that denoise: the product of the axes.
  int world() const {
    int64_t ranks = 1;
    for (const int64_t n : {data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor})
      ranks = ranks > kMostRanks ? ranks : ranks * n;
    return static_cast<int>(ranks > kMostRanks ? kMostRanks + 1 : ranks);
  }
  /// Ranks of the plan: world() and separate decoding ranks.
  int ranks() const { return world() + (vae_apart ? vae : 0); }
  /// True if all data read in step `step` of `steps` is computed in the same step.
  bool fresh(int step, int steps) const {
    return step < warmup || steps - step <= cooldown ||
           (sync_every > 0 && (steps - step) % sync_every == 0);
  }
  int patch_count() const { return patches > 0 ? patches : pipefusion; }
  int shard_count() const { return shards > 0 ? shards : distrifusion; }
  /// Calls of the blocks in a step: one for all tokens, or one for each patch.
  int calls(int step, int steps) const { return fresh(step, steps) ? 1 : patch_count(); }
  /// True if all expert results are read in their own step.
  bool synchronous() const {
    return schedule == ExpertSchedule::sync || schedule == ExpertSchedule::staggered_batch;
  }
  /// True if anything is ever stale or left out.
  bool stale() const {
    return !synchronous() || conditional != KeptSlot::all || shard_count() > 1 || patch_count() > 1;
  }
  bool operator==(const Plan&) const = default;
};

/// An axis along which ranks differ, and its number of ranks.
struct Axis {
  std::string name;
  int size = 1;
};
/// The axes of a plan, outermost first: neighbouring ranks differ along the last axis. The default
/// order is data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor.
std::vector<Axis> axes_of(const Plan& plan);

/// Reads "name=value,name=value" over the defaults; "expert=N" alone implies "data=N". Throws
/// Error(plan) for an unknown, doubled or malformed entry, with the known entries.
Plan parse_plan(const std::string& text);
/// The entries that differ from the defaults, as parse_plan reads them; "" for one rank.
std::string to_string(const Plan& plan);
/// Throws Error(usage) for numbers out of range and invalid enumerators.
void check_values(const Plan& plan);
/// Reasons against a plan on `ranks` ranks, one sentence each; empty: valid, as far as known
/// without a model.
std::vector<std::string> problems(const Plan& plan, int ranks);

}  // namespace tessera
