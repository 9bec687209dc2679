#pragma once

#include <cstdint>
#include <vector>

#include "nn/moe/log.h"

namespace tessera::nn {

/// Observes the experts used by the tokens of each sequence: whole sequences, over all their
/// ranks.
class SequenceUsage {
 public:
  struct Use {
    int site = 0, sequence = 0;
    int64_t tokens = 0, distinct = 0;
  };
  void see(const MoeWork& work);
  /// Usage of the passes since the last call, in order of site; then forgotten. Ranks with common
  /// sequences call together.
  std::vector<Use> take();
  /// Distinct experts of all sequences together, summed over layers and passes: the weights
  /// read.
  int64_t experts_read();

 private:
  struct Call {
    int site = 0;
    std::vector<int> sequences;
    Segments body;
    SequencePeers* peers = nullptr;
    Tensor ids;
    int64_t experts = 0;
  };
  /// For a call and sequence: tokens, then a flag for each expert with any.
  using Counts = std::vector<int64_t>;
  static void count(const Call& call, const Tensor& ids, std::vector<Counts>& counts,
                    std::vector<int>& sequences);
  void settle();

  std::vector<Call> calls_;
  std::vector<Use> uses_;
  int64_t experts_read_ = 0;
};

}  // namespace tessera::nn
