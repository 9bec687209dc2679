#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/nccl/library.h"

namespace tessera::comm::nccl {

/// The ranks of a world, each with a GPU of its own in use, connected by NCCL. All ranks call, and
/// end the result's life, at the same place; the life of a failed rank's ends at once. Throws
/// Error(plan) for more than kMostRanks ranks, Error(rank) when NCCL fails.
std::unique_ptr<Communicator> over(Communicator& world, const Functions& nccl = library());

}  // namespace tessera::comm::nccl
