#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "server/job.h"
#include "server/metrics.h"
#include "server/store.h"

namespace tessera::server {

/// What came of a job.
struct Outcome {
  Json results = Json::array(), text, usage, report;
  double steps = 0, tokens = 0;
};

/// Told of each step of a job.
struct Look {
  std::function<void(Job& job, int step, int steps, double seconds)> step;
};

/// Runs jobs of one batch_key() as one request; previews, blocks and texts become events, and
/// images files of the store. `together`: with ranks that are processes, which stop between two
/// steps alone, all at once. Throws what the library throws.
std::vector<Outcome> run_jobs(const std::vector<JobPtr>& jobs, const Store& store, const Look& look,
                              const std::stop_token& stop, bool together = false);

/// Writes an outcome into the job's record, and counts it.
void take(const Outcome& outcome, Job& job, Metrics& metrics);

}  // namespace tessera::server
