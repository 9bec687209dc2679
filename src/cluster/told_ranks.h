#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "tessera/request.h"

namespace tessera::cluster {

/// What ranks that are processes tell the first one about themselves while they denoise: beside the
/// plan's messages, in no ledger and of nobody's memory. All ranks of `world` make it together, for
/// one request.
class ToldRanks {
 public:
  /// `looks`: whether somebody on rank 0 wants to know; the others' word is not asked for.
  ToldRanks(comm::Communicator& world, bool looks);

  /// What rank 0 said.
  bool wanted() const { return channel_ != nullptr; }
  /// Of a rank other than the first: says it, and goes on. Only where it is wanted.
  void tell(const RankProgress& did);
  /// Of rank 0: the next word of each other rank; waits for it. Throws Error(rank).
  std::vector<RankProgress> hear();

 private:
  std::unique_ptr<comm::Communicator> channel_;
};

}  // namespace tessera::cluster
