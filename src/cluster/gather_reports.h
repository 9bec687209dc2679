#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "tessera/report.h"

namespace tessera::cluster {

/// to[i] += from[i]; `to` grows.
void add_counts(const std::vector<int64_t>& from, std::vector<int64_t>& to);
/// Adds a rank's report to the others': layers, traffic and kept rows.
void add_report(const Report& rank, Report& sum);
/// The same for all ranks of `world`, which are processes, at rank 0.
void gather_reports(comm::Communicator& world, Report& report);

}  // namespace tessera::cluster
