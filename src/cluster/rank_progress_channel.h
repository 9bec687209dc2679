#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "tessera/request.h"

namespace tessera::cluster {

/// Progress of processes for rank 0 during denoising: besides the plan's messages,
/// outside ledgers and memory counts. All ranks of `world` construct this together, for a
/// request.
class RankProgressChannel {
 public:
  /// `looks`: rank 0's interest; other ranks' values are ignored.
  RankProgressChannel(comm::Communicator& world, bool looks);

  /// Rank 0's interest.
  bool wanted() const { return channel_ != nullptr; }
  /// On other ranks: sends progress and continues. Only if wanted.
  void tell(const RankProgress& progress);
  /// On rank 0: waits for the next progress of each other rank. Throws Error(rank).
  std::vector<RankProgress> hear();

 private:
  std::unique_ptr<comm::Communicator> channel_;
};

}  // namespace tessera::cluster
