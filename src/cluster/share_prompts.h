#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"

namespace tessera::cluster {

/// Prompts as ids.
using PromptIds = std::vector<std::vector<int32_t>>;

/// Of a batch that is at work: what `ask` gives on rank 0, on every rank; null: one rank. Others
/// than the first are not asked. All must call it; what `ask` throws all throw.
PromptIds share_prompts(comm::Communicator* world, const std::function<PromptIds()>& ask);

/// The least that ranks say; those that are not to be heard say kAnyNumber.
int64_t least_of(comm::Communicator* world, int64_t number);
inline constexpr int64_t kAnyNumber = INT64_MAX;

}  // namespace tessera::cluster
