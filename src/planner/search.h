#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "diffusion/job.h"
#include "planner/cluster_description.h"
#include "planner/record_plan.h"
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
  Subject(std::unique_ptr<runtime::ModelState> state, const GenerateRequest& request);
  const diffusion::Job& job() const { return *job_; }
  bool has_vae() const { return state_->has_vae(); }
  /// Tokens choose the experts of a trace (PredictionRequest::routing). Throws Error(usage).
  void assume_routing(const std::string& trace);
  int blocks() const;
  int experts() const;
  int64_t heads() const;  ///< heads of self-attention
  /// The recording of a plan. Throws Error(plan).
  const RecordedPlan& of(const Plan& plan);
  const RecordedPlan& decoding(int ranks, double room);
  /// Seconds of all texts on a single rank.
  double text_seconds(const Cluster& cluster) const;
  /// Releases the recordings.
  void forget() { plans_.clear(); }

 private:
  std::unique_ptr<runtime::ModelState> state_;
  std::unique_ptr<diffusion::Job> job_;
  bool brief_ = true, repeats_ = false;  // the sampler's steps, as plans showed them
  std::map<std::string, RecordedPlan> plans_;
  std::map<std::pair<int, double>, RecordedPlan> decodings_;
};

/// Opens a model for dry runs.
void open_subject(const std::string& model, const RunOptions& options, runtime::ModelState& state);

/// Bytes of a device available to a run.
double room_of(const Cluster& cluster);
/// Throws Error(memory) if `what` takes more bytes than a rank has room for.
void require_room(const std::string& what, double bytes, const Cluster& cluster);

/// Decoding runs on the number of ranks with the shortest time.
struct Decoding {
  int ranks = 1;
  double seconds = 0;
  int64_t bytes = 0;    ///< a rank needs so many
  std::string problem;  ///< says why no number of ranks can decode; otherwise empty
};
/// Decodings on a cluster, each found once for all plans. Thread-safe.
class Decodings {
 public:
  /// Returns the fastest decoding by at most `world` ranks.
  Decoding of(Subject& subject, const Cluster& cluster, int world);

 private:
  std::mutex mutex_;
  std::map<int, Decoding> found_;
};

/// Predicts one plan on a cluster. Throws Error(plan), and Error(memory) with the bytes needed.
PredictedPlan predicted(Subject& subject, const Cluster& cluster, const Plan& plan,
                        Decodings& decodings);
/// Sorts by the goal; among equal plans the plan of fewer axes comes first.
void rank(std::vector<PredictedPlan>& plans, PlanGoal goal);

}  // namespace tessera::planner
