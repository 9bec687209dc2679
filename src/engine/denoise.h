#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model_state.h"
#include "nn/token_layout.h"
#include "parallel/denoise.h"
#include "sample/sampler.h"

namespace tessera::engine {

/// Everything about a request that is decided before a weight is read.
struct Job {
  nn::TokenLayout layout;
  std::vector<int> classes;  ///< one a picture
  std::string scheduler;
  std::unique_ptr<sample::Sampler> sampler;
  parallel::Guidance guidance;
  std::map<std::string, tensor::Tensor> given;  ///< of --initial-latents

  int pictures() const { return static_cast<int>(classes.size()); }
  tensor::Shape latent_shape() const {
    return {pictures(), layout.channels, layout.size[1], layout.size[2]};
  }
  parallel::Workload workload() const {
    return {pictures(), layout.tokens(), guidance.branches() ? 2 : 1, sampler->steps()};
  }
};

/// Collects latents and predictions in the layout of the reference pipelines.
class Trace {
 public:
  Trace(const nn::TokenLayout& layout, bool wanted) : layout_(layout), wanted_(wanted) {}
  bool wanted() const { return wanted_; }
  void tokens(const std::string& name, const tensor::Tensor& x);
  void plain(const std::string& name, const tensor::Tensor& x) { tensors_[name] = x; }
  /// Writes what was collected, if it was wanted.
  void write(const std::string& path) const;

 private:
  nn::TokenLayout layout_;
  bool wanted_;
  std::map<std::string, tensor::Tensor> tensors_;
};

/// Throws Error(plan) when the plan of an open model cannot run a job; reads no weights.
void check_plan(const Model::State& state, const Job& job);
/// Loads the transformers of all ranks of this process.
void load_ranks(Model::State& state);
/// Noise to latents [pictures, channels, height, width] f32, on the ranks of the model's plan.
tensor::Tensor denoise(Model::State& state, const GenerateRequest& request,
                       const RunControl& control, const Job& job, Trace& trace, Report& report);

}  // namespace tessera::engine
