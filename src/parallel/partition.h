#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "nn/moe/selection_rule.h"
#include "nn/positions.h"
#include "nn/seams.h"
#include "tessera/plan.h"
#include "tessera/step_cache.h"

namespace tessera::nn {
class RecordedRouting;
}
namespace tessera::parallel {

/// The size of a request, for plans.
struct Workload {
  int samples = 1;
  std::array<int64_t, 3> grid{};  ///< tokens of a sample: frames, height, width
  int branches = 1;               ///< 2 with guidance
  int steps = 1;
  int64_t prefix = 0;  ///< text tokens of the longest sequence
  int64_t lines = 0;   ///< lines of the decoded latent; 0: none
  /// Operations on whole samples: rescaled guidance, a scheduler's dynamic thresholding.
  bool rescales = false, thresholds = false;
  /// For a language model, instead of the above.
  struct Sequences {
    std::vector<int64_t> lengths;       ///< the most tokens of each
    nn::SelectionRule rule{};           ///< the rule for their experts
    std::optional<int64_t> capacity{};  ///< tokens of a pass for an expert; none: all
  };
  std::optional<Sequences> text{};
  /// For samples as a part of a request: the number of the first, and the total; 0: these are
  /// all.
  int first_sample = 0, all_samples = 0;
  int64_t extra = 0;  ///< tokens of a sample behind its grid's (nn::TokenLayout)
  /// Text tokens of each sequence, where they are not all `prefix`; empty: they are.
  std::vector<int64_t> prefixes{};
  std::optional<StepCache> step_cache{};
  bool int8_scores = false;  ///< attention with scores in int8 (ops/attention.h)
  /// For a dry run: the experts of its tokens, where several ranks share experts; null: assumed.
  std::shared_ptr<const nn::RecordedRouting> routing{};

  int64_t prefix_of(int sequence) const {
    return prefixes.empty() ? prefix : prefixes.at(static_cast<size_t>(sequence));
  }
  /// The number of a sequence in the request, from the number among these.
  int number(int sequence) const {
    return all_samples == 0 ? sequence
                            : sequence / samples * all_samples + first_sample + sequence % samples;
  }
  int64_t tokens() const { return grid[0] * grid[1] * grid[2] + extra; }
};

/// The rows of a rank's sequences in a tensor.
enum class Rows { latent, text };

/// The owner of each token under a plan: the only place for splits. For the whole run a rank holds
/// its shard of each patch; shards may be uneven or empty.
class Partition {
 public:
  /// For a request for samples over a mesh with the axes of mesh_of: `data`, `shard` and `cfg`
  /// split the sequences, `patches` the latent, `ring`, `ulysses` and `distrifusion` each patch and
  /// the text. Text belongs to the first patch, which has fewer image tokens. All stages of
  /// `pipefusion` hold the same tokens.
  Partition(comm::Mesh mesh, const Workload& workload, int patches = 1,
            PatchShape shape = PatchShape::runs);
  Partition(const Plan& plan, const Workload& workload);
  /// For a pass of a language model: `data` splits the packed order into runs.
  static Partition of_pass(const Plan& plan, nn::TokenView pass);

  const comm::Mesh& mesh() const { return mesh_; }
  /// The sequences of a rank, by number in the request: branch * samples + sample.
  std::vector<int> sequences(int rank) const;
  /// A rank's tokens of a patch; -1: all. Sequences are numbered from 0, as in the rank's model
  /// (for a pass: as in the pass); text has the ids -prefix_of its sequence to -1.
  nn::TokenView view(int rank, int patch = -1) const;
  /// The joint tokens of ranks with the same sequences, in order of ids.
  nn::TokenView view(const std::vector<int>& ranks, int patch = -1) const;
  /// The tokens of other ranks in the sequences of `call`, a part of a rank's.
  nn::TokenView beside(const nn::TokenView& call, const std::vector<int>& ranks) const;
  /// The tokens of each of a rank's shards, for `count` shards of a sequence over all ranks of
  /// `distrifusion`.
  std::vector<nn::TokenView> shards(int rank, int count) const;
  /// The ids of each of a rank's sequences, text included, for a complete cache.
  std::vector<nn::Range> whole_sequences(int rank) const;
  /// The sizes of a rank's part of the request, for its model.
  nn::TokenShape shape(int rank) const {
    return {static_cast<int>(sequences(rank).size()), workload_.prefix, workload_.grid,
            workload_.extra};
  }
  /// For a pass: the places of a rank in the packed order.
  nn::Range run(int rank) const;
  const nn::TokenView& pass() const { return pass_; }
  /// True if every rank holds whole samples.
  bool whole_samples() const;
  /// The workload's.
  bool int8_scores() const { return workload_.int8_scores; }

  /// Latent rows [samples * tokens, c] of the request -> those of a rank.
  tensor::Tensor cut(const tensor::Tensor& whole, int rank) const;
  /// The places of a patch's tokens among the rank's latent rows.
  std::vector<nn::Range> places(int rank, int patch) const;
  /// Rows of all ranks, by rank -> the request's. With stages, the rows of one stage are read (-1:
  /// the last); all its ranks have rows, or none has, and the result is empty.
  tensor::Tensor join(const std::vector<tensor::Tensor>& parts, Rows rows = Rows::latent,
                      int stage = -1) const;

 private:
  nn::Range samples(int rank) const;
  nn::Segments latent(int rank, int patch = -1) const;
  nn::Segments text(int rank) const;  ///< by the request's numbers
  nn::Range patch_of(int64_t count, int64_t unit_tokens, int patch) const;
  std::vector<nn::Range> ids(int rank, int patch) const;
  std::vector<nn::Range> shard(const std::vector<nn::Range>& patch, int rank) const;

  comm::Mesh mesh_;
  int patches_ = 1;
  PatchShape shape_ = PatchShape::runs;
  Workload workload_{};
  nn::TokenView pass_{};
  bool of_pass_ = false;
};

/// The ranks of a plan, in its order of axes.
comm::Mesh mesh_of(const Plan& plan);
/// Ranks that share experts with `rank`: `expert` neighbours with different tokens.
std::vector<int> expert_group(const Plan& plan, int rank);
/// The place of a rank in this group: equal places hold equal experts.
int expert_place(const Plan& plan, int rank);
/// The number of a rank's portion of the weights (stage, experts, slice, shard): equal numbers mean
/// equal portions.
int portion_number(const Plan& plan, int rank);

/// The part of a view with the sequences view.sequences[begin, end), under their own numbers.
nn::TokenView take_sequences(const nn::TokenView& view, size_t begin, size_t end);
/// The part of a token model's view at `places` of the packed order.
nn::TokenView take_places(const nn::TokenView& view, nn::Range places);
using nn::places_of;

}  // namespace tessera::parallel
