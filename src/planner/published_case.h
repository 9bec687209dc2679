#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "planner/search.h"

namespace tessera::planner {

/// A run measured by a source.
struct PublishedCase {
  std::string model, hardware;
  int ranks = 1;
  int64_t width = 0, height = 0, frames = 0;
  std::optional<int> steps;
  int samples = 1;
  bool compiled = false;            ///< torch.compile, else eager PyTorch
  int warmup = 1;                   ///< steps without stale data
  std::string schedule;             ///< schedule of experts: "", "displaced" or "dice"
  std::map<std::string, int> plan;  ///< degrees, as in published.json
};

/// Reads a row; missing fields are those of other rows of its source. Throws Error(usage) for
/// values of another type.
PublishedCase case_of(const base::Json& row);
/// The degrees as a plan, without the number of patches. Throws Error(usage) for an unknown method.
Plan plan_of(const PublishedCase& run);

/// Predictions of published runs, each computed once. Times cover text and denoising, as in the
/// sources.
class PublishedRuns {
 public:
  /// Seconds of a run; PipeFusion uses the fastest number of patches. Throws Error(plan),
  /// Error(memory), Error(usage).
  double seconds(const PublishedCase& run);
  /// Plans for `ranks` that the measured programs support, fastest first: hybrids of CFG,
  /// PipeFusion, Ulysses and Ring; with `single` only a single method on all ranks.
  struct Ranked {
    Plan plan;
    double seconds = 0;
  };
  const std::vector<Ranked>& all(const PublishedCase& run, bool single);
  /// The peak memory of any rank while denoising.
  int64_t rank_bytes(const PublishedCase& run);
  Simulation simulation(const PublishedCase& run);
  Subject& subject(const PublishedCase& run);
  static Cluster cluster(const PublishedCase& run);

 private:
  double plan_seconds(const PublishedCase& run, const Plan& plan);
  std::map<std::string, std::unique_ptr<Subject>> subjects_;
  std::map<std::string, double> seconds_;
  std::map<std::string, std::string> refused_;
  std::map<std::string, std::vector<Ranked>> ranked_;
};

}  // namespace tessera::planner
