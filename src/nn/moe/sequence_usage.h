#pragma once

#include <cstdint>
#include <vector>

#include "nn/moe/log.h"

namespace tessera::nn {

/// Observes which experts the tokens of each sequence went to: of whole sequences, over all ranks
/// that hold them.
class SequenceUsage {
 public:
  struct Use {
    int site = 0, sequence = 0;
    int64_t tokens = 0, distinct = 0;
  };
  void see(const MoeWork& work);
  /// What the passes since the last call used, in order of site; forgets it. Ranks that share
  /// sequences call it together.
  std::vector<Use> take();
  /// Distinct experts of all sequences together, summed over layers and passes: weights that were
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
  /// Of a call and sequence: tokens, then whether each expert got any.
  using Counts = std::vector<int64_t>;
  static void count(const Call& call, const Tensor& ids, std::vector<Counts>& counts,
                    std::vector<int>& sequences);
  void settle();

  std::vector<Call> calls_;
  std::vector<Use> uses_;
  int64_t experts_read_ = 0;
};

}  // namespace tessera::nn
