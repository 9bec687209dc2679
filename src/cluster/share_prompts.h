#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace tessera::cluster {

/// Prompts as ids.
using PromptIds = std::vector<std::vector<int32_t>>;

/// For a running batch: the result of rank 0's `ask`, on every rank; null: a single rank. Other
/// ranks' `ask` is not called. All ranks must call; all throw an error of `ask`.
PromptIds share_prompts(comm::Communicator* world, const std::function<PromptIds()>& ask);

/// The least value of all ranks; kAnyNumber abstains.
int64_t least_of(comm::Communicator* world, int64_t number);
inline constexpr int64_t kAnyNumber = INT64_MAX;

}  // namespace tessera::cluster
