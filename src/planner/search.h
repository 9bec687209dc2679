#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diffusion/job.h"
#include "planner/cluster_description.h"
#include "planner/foretell.h"
#include "planner/simulate.h"
#include "runtime/model_state.h"
#include "tessera/prediction.h"

namespace tessera::planner {

/// A model and a request for predictions of plans. Recordings are kept, because a recording serves
/// any hardware. Not thread-safe.
class Subject {
 public:
  /// `model`: a folder, a shipped model, or the name of a published model.
  Subject(const std::string& model, const RunOptions& options, const GenerateRequest& request);
  const diffusion::Job& job() const { return *job_; }
  bool has_vae() const { return state_->has_vae(); }
  int blocks() const;
  int experts() const;
  int64_t heads() const;  ///< heads of self-attention
  /// The recording of a plan. Throws Error(plan).
  const Foretold& of(const Plan& plan);
  const Foretold& decoding(int ranks, double room);
  /// Seconds of all texts on a single rank.
  double text_seconds(const Cluster& cluster) const;
  /// Releases the recordings.
  void forget() { plans_.clear(); }

 private:
  std::unique_ptr<runtime::ModelState> state_;
  std::unique_ptr<diffusion::Job> job_;
  std::map<std::string, Foretold> plans_;
  std::map<std::pair<int, double>, Foretold> decodings_;
};

/// Opens a model for dry runs.
void open_subject(const std::string& model, const RunOptions& options, runtime::ModelState& state);

/// Bytes of a device available to a run.
double room_of(const Cluster& cluster);

/// Predicts a plan on a cluster. Throws Error(plan), and Error(memory) with the bytes needed.
PredictedPlan predicted(Subject& subject, const Cluster& cluster, const Plan& plan);
/// Sorts by the goal; among equal plans fewer axes come first.
void rank(std::vector<PredictedPlan>& plans, PlanGoal goal);

}  // namespace tessera::planner
