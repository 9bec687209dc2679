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

/// A run that a source has measured.
struct PublishedCase {
  std::string model, hardware;
  int ranks = 1;
  int64_t width = 0, height = 0, frames = 0;
  std::optional<int> steps;
  int samples = 1;
  bool compiled = false;            ///< torch.compile; else PyTorch as it is
  int warmup = 1;                   ///< steps in which nothing is stale
  std::string schedule;             ///< of experts: "", "displaced" or "dice"
  std::map<std::string, int> plan;  ///< degrees, as published.json has them
};

/// Reads a row; missing fields are those of other rows of its source. Throws Error(usage) for
/// values of another type.
PublishedCase case_of(const base::Json& row);
/// The degrees as a plan, without the number of patches. Throws Error(usage) for a method that is
/// not known.
Plan plan_of(const PublishedCase& run);

/// Predictions of published runs, each made once. Times are text and denoising, as the sources
/// have them.
class PublishedRuns {
 public:
  /// Seconds of a run; PipeFusion with the number of patches that is fastest. Throws Error(plan),
  /// Error(memory), Error(usage).
  double seconds(const PublishedCase& run);
  /// Plans that the measured programs could run on so many ranks, fastest first: hybrids of CFG,
  /// PipeFusion, Ulysses and Ring, and with `single` one method alone on all ranks.
  struct Ranked {
    Plan plan;
    double seconds = 0;
  };
  const std::vector<Ranked>& all(const PublishedCase& run, bool single);
  /// The most memory of a rank, while it denoises.
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
