#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// When the experts' results are read: in the step that computes them, one step later (interweaved)
/// or two (displaced); DICE, ICCV 2025, section 3. Adaptive: in the same step, of the assignments
/// that the budget allows; the others keep the last result of their expert. Staggered batch: in the
/// same step, too; a rank's sequences are two halves, and one computes while the other's results
/// travel.
enum class ExpertSchedule { sync, interweaved, displaced, adaptive, staggered_batch };
/// Which layers stay synchronous under a stale schedule (DICE, section 4.1).
enum class SyncLayers { none, deep, shallow, staggered, list };
/// Which slot of a token is sent in a step that skips the others (DICE, section 4.2).
enum class KeptSlot { all, low, high, random };
/// Whose router weights multiply a stale result: those of its own step, or the newest.
enum class StaleScores { stale, latest };
/// How the rows of a layer get to their experts on other ranks and back: in two exchanges, each of
/// which all ranks wait for, or tile by tile as they are there (fused; after FlashDMoE, Aimuyo et
/// al. 2025). The bits are the same.
enum class MoeForm { bulk, fused };
/// Which rank of a group has which experts: runs of neighbours, one in turn, or as a list says.
enum class ExpertPlacement { blocks, strided, list };

/// What a patch is: a run of tokens in their order (frames, then lines), or the same lines of every
/// frame.
enum class PatchShape { runs, bands };

/// Directions in which ranks are spread.
enum class PlanAxis { data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor };

/// More ranks than any plan may need.
inline constexpr int kMostRanks = 4096;

/// How a request is spread over ranks: numbers, nothing else.
struct Plan {
  int data = 1;        ///< groups of samples
  int cfg = 1;         ///< 2: each branch of guidance has ranks of its own
  int pipefusion = 1;  ///< stages of blocks, which patches pass one after the other (PipeFusion,
                       ///< Fang et al. 2024)
  int ring = 1;     ///< shards of tokens whose keys and values pass by (Ring Attention, Liu 2023)
  int ulysses = 1;  ///< shards of tokens that are shards of heads in attention (Jacobs et al. 2023)
  int tensor = 1;   ///< shards of the weights
  int distrifusion =
      1;           ///< shards of tokens with stale keys and values (DistriFusion, Li et al. 2024)
  int shard = 1;   ///< ranks that spread the weights; each block is gathered ahead of its turn,
                   ///< what stands around them at its use, text encoders layer by layer (FSDP, Zhao
                   ///< et al. 2023, hybrid sharding); a rank without a sample keeps weights alone
  int expert = 1;  ///< ranks that share a layer's experts; laid over the others
  int vae = 1;     ///< ranks, the first ones, that decode an image together, some of its lines each
  bool vae_apart = false;  ///< these are ranks of their own behind the others, and decode while
                           ///< those denoise the next samples or request
  int warmup = 1;          ///< first steps in which nothing is stale, >= 1
  /// Parts of a sample that pass the network one after the other once nothing is fresh; keys and
  /// values of the others are their last ones. 0: as many as stages.
  int patches = 0;
  PatchShape cut = PatchShape::runs;  ///< of patches
  /// Parts of a sample's tokens, text too, each of which sees its own keys and values as they are
  /// in a step and those of the others as they were in the step before (DistriFusion): a count,
  /// legal on one rank. Ranks of distrifusion= have as many each. 0: one a rank.
  int shards = 0;
  std::vector<int> stages{};  ///< blocks of each stage; empty: balanced by FLOPs and bytes
  /// Axes that come first, outermost first; the others follow in the order of axes_of(Plan{}).
  std::vector<PlanAxis> order{};

  ExpertSchedule schedule = ExpertSchedule::sync;
  int budget = 50;  ///< of adaptive: percent of the assignments that a step sends
  SyncLayers sync = SyncLayers::none;
  std::vector<int> sync_list{};  ///< of SyncLayers::list
  int sync_every = 0;  ///< also fresh: steps s of S with (S - s) % sync_every == 0; 0: none
  KeptSlot conditional = KeptSlot::all;
  int stride = 2;  ///< of conditional: all slots are sent when (S - s) % stride == 0
  bool conditional_all_layers = true;  ///< false: asynchronous layers only
  StaleScores scores = StaleScores::stale;
  MoeForm moe = MoeForm::bulk;
  ExpertPlacement placement = ExpertPlacement::blocks;
  std::vector<int> placement_list{};  ///< of ExpertPlacement::list: the rank of each expert

  /// Ranks that denoise: the product of the axes.
  int world() const {
    int64_t ranks = 1;
    for (const int64_t n : {data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor})
      ranks = ranks > kMostRanks ? ranks : ranks * n;
    return static_cast<int>(ranks > kMostRanks ? kMostRanks + 1 : ranks);
  }
  /// Ranks that the plan needs: those, and what decodes apart.
  int ranks() const { return world() + (vae_apart ? vae : 0); }
  /// Whether everything read in step `step` of `steps` is computed in it.
  bool fresh(int step, int steps) const {
    return step < warmup || (sync_every > 0 && (steps - step) % sync_every == 0);
  }
  int patch_count() const { return patches > 0 ? patches : pipefusion; }
  int shard_count() const { return shards > 0 ? shards : distrifusion; }
  /// How often the blocks run in a step: for all tokens at once, or for each patch.
  int calls(int step, int steps) const { return fresh(step, steps) ? 1 : patch_count(); }
  /// Whether expert results are read in the step that computes them, all of them.
  bool synchronous() const {
    return schedule == ExpertSchedule::sync || schedule == ExpertSchedule::staggered_batch;
  }
  /// Whether anything is ever stale or left out.
  bool stale() const {
    return !synchronous() || conditional != KeptSlot::all || shard_count() > 1 || patch_count() > 1;
  }
  bool operator==(const Plan&) const = default;
};

/// A direction in which ranks are spread: what differs along it, and how many ranks stand there.
struct Axis {
  std::string name;
  int size = 1;
};
/// The axes of a plan, outermost first: ranks that are neighbours differ along the last one. The
/// default order is data, cfg, pipefusion, ring, ulysses, distrifusion, shard, tensor.
std::vector<Axis> axes_of(const Plan& plan);

/// Reads "name=value,name=value" over the defaults; "expert=N" alone implies "data=N". Throws
/// Error(plan) that names an unknown, doubled or malformed entry and lists what is known.
Plan parse_plan(const std::string& text);
/// The entries that differ from the defaults, as parse_plan reads them; "" for one rank.
std::string to_string(const Plan& plan);
/// Throws Error(usage) for numbers out of their range and for enumerators that are none.
void check_values(const Plan& plan);
/// Why a plan cannot run on `ranks` ranks, one sentence each; empty: it can, as far as can be told
/// without a model.
std::vector<std::string> problems(const Plan& plan, int ranks);

}  // namespace tessera
