#pragma once

#include <memory>
#include <vector>

#include "admission/token_memory.h"
#include "planner/cluster_description.h"
#include "planner/recording.h"
#include "runtime/model_state.h"
#include "tessera/prediction.h"

namespace tessera::planner {

/// A language model and a run whose plans are predicted. Not thread-safe.
class LanguageSubject {
 public:
  /// `state`: an open language model. Throws Error(usage) for numbers out of range.
  LanguageSubject(std::unique_ptr<runtime::ModelState> state, const PredictionRequest& request);
  int experts() const;
  /// Plans of so many ranks that are worth a try; `fused`: moe=fused runs there.
  std::vector<Plan> plans(int ranks, bool fused) const;
  /// The dry run of a plan: a step of the recording for each kind of pass.
  struct RecordedPlan {
    Recording recording;
    admission::TokenForecast forecast;
  };
  /// Throws Error(plan).
  RecordedPlan of(const Plan& plan);
  /// Throws Error(plan), and Error(memory) with the bytes needed.
  PredictedPlan predicted(const Cluster& cluster, const Plan& plan);

 private:
  std::unique_ptr<runtime::ModelState> state_;
  admission::TokenSketch sketch_;
  int passes_ = 0;  // passes of each block or canvas; 0 stands for the most
};

}  // namespace tessera::planner
