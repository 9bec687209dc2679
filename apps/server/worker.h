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

/// What a run tells of its jobs, and asks.
struct Look {
  std::function<void(Job& job, int step, int steps, double seconds)> step;
  /// There is room for the run, once or more often: before all steps.
  std::function<void()> admitted{};
  /// Does what is left when the library has answered, such as encoding files: where ranks are
  /// processes, the first one does it alone.
  std::function<void(const std::function<void()>& work)> after;
  /// Of texts, before each pass: further jobs of the same batch_key(), beside those that make so
  /// many answers still; none where it is empty.
  std::function<std::vector<JobPtr>(int at_work)> join{};
  /// A job has ended, and the run goes on.
  std::function<void(const JobPtr& job, const Outcome& outcome)> ended{};
};

/// Runs jobs of one batch_key() as one request; previews, blocks and texts become events, and
/// images files of the store. Jobs that join are appended to `jobs`. `together`: with ranks that
/// are processes, which stop between two steps alone, all at once. Throws what the library throws.
std::vector<Outcome> run_jobs(std::vector<JobPtr>& jobs, const Store& store, const Look& look,
                              const std::stop_token& stop, bool together = false);

/// Writes an outcome into the job's record, and counts it.
void take(const Outcome& outcome, Job& job, Metrics& metrics);

}  // namespace tessera::server
