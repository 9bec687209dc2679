#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "server/job.h"
#include "server/metrics.h"
#include "server/store.h"

namespace tessera::server {

/// Outcome of a job.
struct Outcome {
  Json results = Json::array(), text, usage, report;
  double steps = 0, tokens = 0;
};

/// Callbacks of a run about its jobs.
struct RunCallbacks {
  std::function<void(Job& job, int step, int steps, double seconds)> step;
  /// Memory for the run was granted: called before all steps, then at each progress.
  std::function<void()> admitted{};
  /// Runs work after the library has answered, such as encoding files; with rank processes, rank 0
  /// alone does this.
  std::function<void(const std::function<void()>& work)> after;
  /// Returns further jobs of the same batch_key() before each pass of a text run; `active` is
  /// the number of answers still running. Empty: no joins.
  std::function<std::vector<JobPtr>(int active)> join{};
  PrefixCache* prefix = nullptr;  ///< conversations of all clients; null: none are kept
  /// A job ended while the run continues.
  std::function<void(const JobPtr& job, const Outcome& outcome)> ended{};
};

/// Runs jobs of one batch_key() as one request. Previews, blocks and texts become events; images
/// become files of the store. Joined jobs are appended to `jobs`. `together`: ranks are processes
/// and stop only between two steps, all at once. Throws the library's errors.
std::vector<Outcome> run_jobs(std::vector<JobPtr>& jobs, const Store& store,
                              const RunCallbacks& callbacks, const std::stop_token& stop,
                              bool together = false);

/// Writes an outcome into the job's record and counts it.
void take(const Outcome& outcome, Job& job, Metrics& metrics);

}  // namespace tessera::server
