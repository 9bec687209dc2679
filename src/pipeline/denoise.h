#pragma once

#include <map>
#include <string>

#include "pipeline/plan_job.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Collects latents and predictions in the layout of the reference pipelines.
class Trace {
 public:
  Trace(const Job& job, bool wanted) : layout_(job.layout), form_(job.form), wanted_(wanted) {}
  bool wanted() const { return wanted_; }
  void tokens(const std::string& name, const tensor::Tensor& x);
  void plain(const std::string& name, const tensor::Tensor& x) { tensors_[name] = x; }
  int64_t bytes() const;
  /// Writes what was collected, if it was wanted.
  void write(const std::string& path) const;

 private:
  nn::TokenLayout layout_;
  nn::LatentForm form_;
  bool wanted_;
  std::map<std::string, tensor::Tensor> tensors_;
};

/// Loads the transformers of all ranks of this process into job.networks.
void load_ranks(ModelState& state, Job& job);
/// The most that was held at once.
MemoryPeaks peaks_of(const tensor::MemoryTracker& memory);
/// Whether messages of this operation are the plan's, not those that agree on going on, show or
/// return what was made, or share memory.
bool is_by_plan(const std::string& operation);
/// What a rank did, as its scope counts it.
Report::Rank work_of(const tensor::Scope& rank, int64_t sent);
/// Noise to latents in token layout f32, on the ranks of the model's plan.
tensor::Tensor denoise(ModelState& state, const GenerateRequest& request, const RunControl& control,
                       const Job& job, Trace& trace, Report& report);

}  // namespace tessera::pipeline
