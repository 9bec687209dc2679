#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tessera/request.h"

namespace tessera {

/// Order of predicted plans: by seconds of the request, by samples per second, or by bytes of the
/// largest rank.
enum class PlanGoal { latency, throughput, memory };

/// Input of a prediction.
struct PredictionRequest {
  /// Sizes, steps, guidance, count; prompts have the usual length. Of a language model: steps are
  /// passes for each block or canvas (none: the most), count prompts.
  GenerateRequest generate;
  int64_t prompt_tokens = 0, answer_tokens = 0;  ///< for a language model; 0: as usual
  /// A known device ("L40", "A100", "H100", ...), a file that describes a cluster
  /// (docs/guides/predict_a_run.md), or "here": this machine, measured now.
  std::string hardware;
  std::string changes;  ///< differences from the hardware: "link=25Gbit,memory=40GB"
  int ranks = 1;
  PlanGoal goal = PlanGoal::latency;
  bool stale = false;       ///< also PipeFusion, DistriFusion and stale experts
  std::vector<Plan> plans;  ///< only these; empty: all plans for the ranks
  /// Tokens of each expert of a layer, to any scale; empty: alike.
  std::vector<double> expert_load;
  /// A trace of a run with the same sizes (GenerateRequest::trace): tokens have its experts, and
  /// all steps are predicted; empty: as expert_load says. For image models.
  std::string routing;
};

/// Prediction of one plan.
struct PredictedPlan {
  std::string plan;  ///< as parse_plan reads it; "": one rank
  /// Seconds. Of a language model: of reading prompts and finished canvases into its cache, of its
  /// passes, none.
  double text = 0, denoising = 0, decoding = 0;
  double seconds() const { return text + denoising + decoding; }
  double samples_per_second = 0;
  double waiting = 0;                        ///< share of time that ranks wait for messages, 0..1
  int64_t rank_bytes = 0;                    ///< memory of the largest rank
  double sent_bytes = 0, messages = 0;       ///< by all ranks, while denoising
  double flops = 0;                          ///< per step, by the rank with the most
  std::map<std::string, double> link_bytes;  ///< by link of the cluster, while denoising
  double passes = 0, pass_seconds = 0;       ///< for a language model
};
/// A plan that cannot run, with the reason and the need.
struct RefusedPlan {
  std::string plan, reason;
};
/// All plans for some ranks, best first.
struct Prediction {
  std::string model, hardware;
  int ranks = 1;
  std::vector<PredictedPlan> plans;
  std::vector<RefusedPlan> refused;
};

/// Predicts all plans: runs each plan on tensors without elements, and replays the recording on the
/// described cluster. `model` is a folder, a shipped model, or the name of a published model. Reads
/// no weights. `progress` gets the number of finished plans, and of all. Throws Error(usage) for
/// invalid hardware, sizes or changes, Error(model), Error(cancelled).
Prediction predict_plans(const std::string& model, const RunOptions& options,
                         const PredictionRequest& request,
                         const std::function<void(int done, int all)>& progress = {},
                         const std::stop_token& stop = {});
/// Best plan for a request. Throws Error(plan) if none can run or fit.
PredictedPlan choose_plan(const std::string& model, const RunOptions& options,
                          const PredictionRequest& request, const std::stop_token& stop = {});
/// Fewest ranks, from 1 to `most`, with a plan that takes at most `deadline` seconds; the result
/// has no plans if there are none.
Prediction fewest_ranks(const std::string& model, const RunOptions& options,
                        const PredictionRequest& request, double deadline, int most,
                        const std::stop_token& stop = {});
/// Predicted timeline of the first of the request's plans, a lane per rank: Chrome's trace format
/// (JSON with "traceEvents"), or an SVG image.
enum class TimelineForm { trace, image };
std::string timeline(const std::string& model, const RunOptions& options,
                     const PredictionRequest& request, TimelineForm form,
                     const std::stop_token& stop = {});
/// Times what the ranks of this thread's runs do, while it lives: the measured timeline, in the
/// forms of timeline(). Ranks that are processes see themselves alone.
class RunTimeline {
 public:
  RunTimeline();
  ~RunTimeline();
  RunTimeline(const RunTimeline&) = delete;
  RunTimeline& operator=(const RunTimeline&) = delete;
  std::string text(TimelineForm form) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
/// Ops and messages of every rank under the first of the request's plans, as JSON.
std::string recording(const std::string& model, const RunOptions& options,
                      const PredictionRequest& request, const std::stop_token& stop = {});
/// A JSON object in a single line.
std::string to_json(const Prediction& prediction);
/// A histogram of experts for PredictionRequest::expert_load from a JSON file: a list of numbers,
/// or an object with such a list under "expert_load". Throws Error(usage) that names the value.
std::vector<double> read_expert_load(const std::string& file);

/// Predicts the rows of a file in the form of published.json ({"rows": [...], "orderings": [...]}).
/// `line` gets one JSON object per row, {"id", "predicted", "measured", "error"} or {"id",
/// "skipped"}, then a summary. Throws Error(usage) for a file of another form.
void score_predictions(const std::string& file, int threads,
                       const std::function<void(const std::string& json)>& line,
                       const std::stop_token& stop = {});

/// Measures this machine for runs of `ranks` ranks, in some seconds. Returns a description for
/// PredictionRequest::hardware, as JSON.
std::string calibrate(int ranks, int threads, const std::stop_token& stop = {});
/// Whether inspect_by_name and predict_plans know a published model by this name
/// ("black-forest-labs/FLUX.1-dev", "flux_1_dev").
bool is_known_model_size(const std::string& name);
/// Names of known devices for PredictionRequest::hardware.
std::vector<std::string> known_hardware();

}  // namespace tessera
