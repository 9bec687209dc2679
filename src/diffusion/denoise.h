#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "diffusion/job.h"
#include "nn/moe/recorded_routing.h"
#include "tessera/report.h"

namespace tessera::cluster {
class RankProgressChannel;
}
namespace tessera::diffusion {

/// Collects latents and predictions in the layout of the reference pipelines, and the experts of
/// each token.
class Trace {
 public:
  Trace(const Job& job, bool wanted);
  bool wanted() const { return wanted_; }
  /// Adds latents or predictions of all samples, or of the next samples after those with this name.
  void tokens(const std::string& name, const tensor::Tensor& x);
  void plain(const std::string& name, const tensor::Tensor& x) { tensors_[name] = x; }
  /// Adds the experts of a call; `numbers` as in RecordedRouting::note.
  void routing(const nn::MoeWork& work, const std::vector<int>& numbers);
  /// Bytes of latents and predictions. No rank counts the experts of tokens.
  int64_t bytes() const;
  /// Writes the collected tensors, if a trace was requested; experts if those of all ranks are
  /// here.
  void write(const std::string& path) const;

 private:
  nn::TokenLayout layout_;
  nn::LatentForm form_;
  bool wanted_;
  std::map<std::string, tensor::Tensor> tensors_;
  nn::RecordedRouting routing_;
};

/// Loads the transformers of all ranks of this process into job.loaded.networks.
void load_ranks(runtime::ModelState& state, Job& job);
/// Denoises a job, whole or part by part (parts.h), on ranks of which this process has some; what
/// they do is in one report. Its functions are each rank's.
class Denoising {
 public:
  Denoising(runtime::ModelState& state, const GenerateRequest& request, const RunControl& control,
            const Job& job, Trace& trace, Report& report);
  /// Denoises one part of the job on `ranks` (null: a single rank). Returns the latents of all its
  /// samples in token layout f32, at rank 0. Before each step a failure in `world`, if given, ends
  /// the run.
  tensor::Tensor run(comm::Communicator* ranks, const Job& part,
                     const comm::Communicator* world = nullptr);
  /// Adds a rank's work, memory and the bytes sent since `before` to the report. `weights`: bytes
  /// of the decoder if the rank decoded; 0: the rank denoised.
  void end(int rank, const comm::Communicator* world, const comm::Ledger::Entries& before,
           int64_t weights = 0);
  /// Seconds in which blocks were loaded since the first part began (runtime/loading_denoiser.h).
  double loaded() const;

 private:
  /// State of a rank when its first part began.
  struct Begin {
    comm::Ledger::Entries sent_before;
    double seconds = 0;
    int64_t bytes = 0;  ///< sent by the plan since
  };
  /// Seconds since the first part began, without loaded().
  double seconds() const;
  Begin& begin(int rank, const comm::Communicator* ranks);
  parallel::DenoiseControl watch(const parallel::Setup& setup, const Job& part,
                                 std::vector<double>& marks);
  void tell(const Job& part, int step, double seconds,
            const std::function<tensor::Tensor()>& latent);
  void note_now(const parallel::Setup& setup, const Begin& since);
  void note_others(cluster::RankProgressChannel& channel, int rank, int words);
  void note_steps(const Job& part, const std::vector<double>& marks, const tensor::Tensor& latent);
  void note_reuse(const parallel::Setup& setup);
  void note_rank(const parallel::Setup& setup);
  void trace_experts(const parallel::Setup& setup, const Job& part);

  runtime::ModelState& state_;
  const GenerateRequest& request_;
  const RunControl& control_;
  const Job& job_;
  Trace& trace_;
  Report& report_;
  const std::vector<nn::Range> parts_;
  std::mutex mutex_;
  base::Stopwatch clock_;
  double loaded_before_ = 0;
  std::map<int, Begin> begins_{};
  std::map<int, RankProgress> now_{};  // ranks of this process, and reports of others
};

/// Noise to latents in token layout f32, on the ranks of the model's plan.
tensor::Tensor denoise(runtime::ModelState& state, const GenerateRequest& request,
                       const RunControl& control, const Job& job, Trace& trace, Report& report);

}  // namespace tessera::diffusion
