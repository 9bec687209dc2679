#pragma once

#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// What rank 0 says to the others: nothing yet, the end, or order_of() jobs.
inline constexpr const char* kNothing = "";
inline constexpr const char* kEnd = "end";
/// Jobs that run as one request, as the other ranks need to know them.
std::string order_of(const std::vector<JobPtr>& jobs);
/// The jobs of an order. Throws Refusal for what is none.
std::vector<JobPtr> jobs_of(const std::string& order, const Models& models, const Limits& limits);

/// The part of a rank other than the first, where ranks are processes: does what rank 0 says until
/// it says the end. Only rank 0 obeys signals that reach all of them. Throws Error(rank) when it
/// falls silent.
void follow(const Models& models, const Limits& limits, const Processes& processes);

}  // namespace tessera::server
