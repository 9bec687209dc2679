#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/nccl/library.h"

namespace tessera::comm::nccl {

/// The ranks of a world, each of which has taken a GPU of its own into use, with NCCL between the
/// GPUs. All ranks call it, and end its life, at the same place; that of a rank that fails ends at
/// once. Throws Error(plan) for more than kMostRanks ranks, Error(rank) when NCCL fails.
std::unique_ptr<Communicator> over(Communicator& world, const Functions& nccl = library());

}  // namespace tessera::comm::nccl
