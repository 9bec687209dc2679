#pragma once

#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Messages of rank 0 to the other ranks: no work, the end, or an order_of() jobs.
inline constexpr const char* kNothing = "";
inline constexpr const char* kEnd = "end";
/// Serialises jobs that run as one request for the other ranks.
std::string order_of(const std::vector<JobPtr>& jobs);
/// Parses the jobs of an order. Throws Refusal for a malformed order.
std::vector<JobPtr> jobs_of(const std::string& order, const Models& models, const Limits& limits);

/// Main loop of all ranks except rank 0 if ranks are processes: executes orders of rank 0 until the
/// end. Only rank 0 handles signals, which reach all ranks. Throws Error(rank) if rank 0 falls
/// silent.
void follow(const Models& models, const Limits& limits, const Processes& processes);

}  // namespace tessera::server
