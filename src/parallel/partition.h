#pragma once

#include <array>
#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "nn/moe/selection_rule.h"
#include "nn/positions.h"
#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// The size of a request, as plans see it.
struct Workload {
  int samples = 1;
  std::array<int64_t, 3> grid{};  ///< tokens of a sample: frames, height, width
  int branches = 1;               ///< 2 with guidance
  int steps = 1;
  int64_t prefix = 0;  ///< text tokens of a sequence
  int64_t lines = 0;   ///< of a latent that a VAE decodes; 0: none does
  /// What measures whole samples: rescaled guidance, a scheduler's dynamic thresholding.
  bool rescales = false, thresholds = false;
  /// Of a language model, in place of all that.
  struct Sequences {
    std::vector<int64_t> lengths;       ///< the most tokens that each will have
    nn::SelectionRule rule{};           ///< who chooses the experts of its tokens
    std::optional<int64_t> capacity{};  ///< tokens of a pass that an expert takes; none: all
  };
  std::optional<Sequences> text{};
  /// Where the samples are a part of a request: the number of the first one in it, and how many
  /// there are; 0: these are all.
  int first_sample = 0, all_samples = 0;

  /// The number of a sequence in the request, of its number among these.
  int number(int sequence) const {
    return all_samples == 0 ? sequence
                            : sequence / samples * all_samples + first_sample + sequence % samples;
  }
  int64_t tokens() const { return grid[0] * grid[1] * grid[2]; }
};

/// Which rows of its sequences a rank holds in a tensor.
enum class Rows { latent, text };

/// Who holds which tokens under a plan: the only place that cuts. A rank holds the union, over all
/// patches, of its shard of each, from the first step to the last; shards may be uneven or empty.
class Partition {
 public:
  /// Of a request for samples over a mesh with the axes of mesh_of: `data`, `shard` and `cfg` part
  /// its sequences, `patches` their latent, `ring`, `ulysses` and `distrifusion` each patch and the
  /// text, which belongs to the first patch: that has fewer tokens by as many.
  /// All stages of `pipefusion` hold the same tokens.
  Partition(comm::Mesh mesh, const Workload& workload, int patches = 1,
            PatchShape shape = PatchShape::runs);
  Partition(const Plan& plan, const Workload& workload);
  /// Of one pass of a language model: `data` parts its packed order into runs.
  static Partition of_pass(const Plan& plan, nn::TokenView pass);

  const comm::Mesh& mesh() const { return mesh_; }
  /// The sequences of a rank, by their numbers over the request: branch * samples + sample.
  std::vector<int> sequences(int rank) const;
  /// What a rank holds of a patch; -1: of all. Sequences are numbered from 0, as its model knows
  /// them (of a pass: as the pass does); text has the ids -prefix to -1.
  nn::TokenView view(int rank, int patch = -1) const;
  /// What ranks of the same sequences hold together, in order of ids.
  nn::TokenView view(const std::vector<int>& ranks, int patch = -1) const;
  /// What ranks that hold other tokens of the sequences of `call`, some of a rank's, have of these.
  nn::TokenView beside(const nn::TokenView& call, const std::vector<int>& ranks) const;
  /// What each of a rank's shards has of its tokens, of `count` shards of a sequence over all ranks
  /// of `distrifusion`.
  std::vector<nn::TokenView> shards(int rank, int count) const;
  /// The ids of each of a rank's sequences, text included: what one keeps who keeps all of them.
  std::vector<nn::Range> whole_sequences(int rank) const;
  /// The sizes of a rank's part of the request, as its model is told them.
  nn::TokenShape shape(int rank) const {
    return {static_cast<int>(sequences(rank).size()), workload_.prefix, workload_.grid};
  }
  /// Of a pass: the places in its packed order that a rank has.
  nn::Range run(int rank) const;
  const nn::TokenView& pass() const { return pass_; }
  /// Whether no rank holds a part of a sample only.
  bool whole_samples() const;

  /// Latent rows [samples * tokens, c] of the request -> those of a rank.
  tensor::Tensor cut(const tensor::Tensor& whole, int rank) const;
  /// Where the tokens of a patch stand among the latent rows that a rank holds.
  std::vector<nn::Range> places(int rank, int patch) const;
  /// Rows of all ranks, by rank -> the request's. Of stages, those of one are read (-1: the last);
  /// its ranks all have them, or none has, and then there are none.
  tensor::Tensor join(const std::vector<tensor::Tensor>& parts, Rows rows = Rows::latent,
                      int stage = -1) const;

 private:
  nn::Range samples(int rank) const;
  nn::Segments latent(int rank, int patch = -1) const;
  nn::Segments text(int rank) const;  ///< by the numbers of the request's sequences
  nn::Range patch_of(int64_t count, int64_t each, int patch) const;
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
/// Ranks that share experts with `rank`: runs of `expert` neighbours that hold different tokens.
std::vector<int> expert_group(const Plan& plan, int rank);
/// The place of a rank in that group: equal places hold equal experts.
int expert_place(const Plan& plan, int rank);
/// The number of a rank's portion of the weights, its stage, experts, slice and what it keeps of
/// them for others: equal numbers hold equal portions.
int portion_number(const Plan& plan, int rank);

/// The part of a view that holds the sequences view.sequences[begin, end), under their own numbers.
nn::TokenView take_sequences(const nn::TokenView& view, size_t begin, size_t end);
/// The part of a token model's view whose places in its packed order are in `places`.
nn::TokenView take_places(const nn::TokenView& view, nn::Range places);
using nn::places_of;

}  // namespace tessera::parallel
