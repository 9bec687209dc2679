#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tessera/complete.h"
#include "tessera/plan.h"
#include "tessera/request.h"

namespace tessera {

/// Plans compared on one model: what staleness costs.
struct EvalRequest {
  std::vector<Plan> plans;   ///< each beside the synchronous plan, from the same noise
  GenerateRequest generate;  ///< steps, guidance, scheduler, first seed; classes: all in turn
  int images = 320;          ///< of each plan
  int batch = 32;            ///< images in one request
  int unpaired_from = 1000;  ///< images; fewer say little about a distribution
};
/// The quality of a plan: means with half widths of 95 % confidence intervals.
struct PlanQuality {
  std::string plan;  ///< "" is the synchronous one
  int images = 0;
  double latent_error = 0, latent_error_half = 0;  ///< |latent - synchronous| / |synchronous|
  double psnr = 0, psnr_half = 0;                  ///< of the images, dB, at most 100
  double recognised = -1;  ///< share of images that show what was asked for; -1: nobody can tell
  double recognised_change = 0, recognised_change_half = 0;  ///< to the synchronous, image by image
  /// Of all images at once, beside the real images that the critic's reference.safetensors
  /// stands for; -1: no such file, or fewer images than unpaired_from.
  double frechet = -1, spatial_frechet = -1, inception_score = -1, precision = -1, recall = -1;
  int64_t assignments = 0;       ///< sent to experts; the bytes between ranks follow them
  double assignments_share = 1;  ///< of what the synchronous plan sends
  double seconds = 0;            ///< of all its requests
  int64_t peak_bytes = 0;        ///< the most that one request held
};
/// Runs the synchronous plan and each other on one model; `line` gets a result as soon as it
/// stands, the synchronous one first. Throws as Model::generate does.
void evaluate(const std::string& model, const RunOptions& options, const EvalRequest& request,
              const std::function<void(const PlanQuality&)>& line, const std::stop_token& stop);

/// How long requests of several sizes take under several plans.
struct SpeedRequest {
  std::vector<Plan> plans;                       ///< none: the synchronous one
  std::vector<int> batches{1, 2, 4, 8, 16, 32};  ///< images in a request
  GenerateRequest generate;                      ///< steps, guidance, scheduler, first seed
  int rounds = 3;                                ///< of all plans in turn; the median counts
};
struct PlanSpeed {
  std::string plan;
  int batch = 0;
  double seconds = 0;            ///< of a request: denoising and decoding
  double images_per_second = 0;  ///< batch / seconds
  int64_t peak_bytes = 0;        ///< of all ranks and classes
};
/// Measures every plan with every batch; `line` gets the results by batch, then by plan. One model
/// is open at a time; opening it, and its first short request, do not count. Throws as
/// Model::generate does, Error(usage) for batches or rounds below 1.
void measure_speed(const std::string& model, const RunOptions& options, const SpeedRequest& request,
                   const std::function<void(const PlanSpeed&)>& line, const std::stop_token& stop);

/// The limits of this machine by probe and each kernel's share of them; of a GPU, what its library
/// product of 8192 x 8192 x 8192 and a copy within its memory reach. `device`: as in RunOptions.
void bench_kernels(int threads, const std::function<void(const std::string& json)>& line,
                   const DeviceOption& device = {});

/// JSON lines with prompt, answer and task.
struct TaskSource {
  std::string name;                 ///< a file; "": tasks.jsonl of the model
  std::optional<std::string> text;  ///< the lines themselves: `name` then says where they are from
};

/// Tasks with one right answer each, put to a language model under rules that select experts (DES).
struct TaskRequest {
  CompleteRequest complete;  ///< how it is decoded; prompts, select and max_tokens are not used
  /// Rules beside vanilla. With `tune` those that differ in their value alone are a sweep, a name
  /// alone ("des-vote", "topk,weights=A") stands for one, and none for all.
  std::vector<std::string> selects;
  TaskSource data;
  bool number = false;     ///< compare the last number of answer and text; else all of both
  int64_t max_tokens = 0;  ///< behind every prompt alike; 0: as generation_config.json says, or 128
  int limit = 0;           ///< examples; 0: all
  int batch = 16;          ///< prompts at once
  /// Share of vanilla's accuracy that may be lost: finds the fewest experts for each rule, on every
  /// other example of a task; what stands in between says how good they are.
  std::optional<double> tune;
};

/// What one rule made of the tasks.
struct TaskQuality {
  std::string select;  ///< as parse_selection reads it
  int examples = 0;
  double accuracy = 0, accuracy_low = 0, accuracy_high = 1;  ///< Wilson's 95 % interval
  int64_t gained = 0, lost = 0;  ///< right here and not under vanilla, and the other way round
  double p = 1;                  ///< McNemar's exact test of these two
  double ruled = 1;              ///< share of the tokens that passes under the rule decided
  /// Distinct experts of a sequence's tokens, mean over layers and the passes under the rule.
  double experts = 0;
  double experts_share = 1;  ///< of what vanilla touches
  double batch_experts = 0;  ///< distinct experts of a batch in a layer, mean over all its passes
  double passes = 0;         ///< forward passes of an example
  double bytes = 0;          ///< that an example moves, by count of the ops; in batches
  double milliseconds = 0;   ///< of an example, in batches
  std::vector<std::pair<std::string, double>> tasks;  ///< accuracy by task
};

/// Runs vanilla and each rule on the same examples; `line` gets a result as soon as it stands.
/// With `tune`: what the half that did not choose says of each rule with the fewest experts that
/// keeps 1 - `tune` of vanilla's accuracy (left out where none does), in the order of rules. Throws
/// Error(usage) for data and rules that do not fit, Error(model) for a model that is no language
/// model.
std::vector<TaskQuality> evaluate_tasks(const std::string& model, const RunOptions& options,
                                        const TaskRequest& request,
                                        const std::function<void(const TaskQuality&)>& line,
                                        const std::stop_token& stop = {});
/// One JSON object in one line.
std::string to_json(const TaskQuality& quality);

/// What experts a model's blocks touch, and what coresets keep of them, under the vanilla routing.
struct ExpertsRequest {
  CompleteRequest complete;          ///< how it is decoded
  std::vector<std::string> selects;  ///< rules with a coreset; none: des-seq, des-vote, des-max
  TaskSource data;
  int64_t max_tokens = 0;  ///< as in TaskRequest
  int limit = 24;          ///< examples; 0: all
};
/// Distinct experts of the first tokens of a pass, beside M(1 - (1 - K/M)^N) for N tokens that
/// choose K of M experts independently.
struct UniqueExperts {
  int layer = 0;
  int64_t tokens = 0;
  double distinct = 0, independent = 0;
  int64_t samples = 0;
};
/// A rule's coresets in one layer, beside others of the same size: the layer's busiest experts over
/// all data (fixed), and random ones.
struct CoresetQuality {
  std::string select;
  int layer = 0;
  double size = 0;  ///< experts, mean
  struct Of {
    double recall = 0;    ///< share of the vanilla choices that lie in the coreset
    double residual = 0;  ///< |routed output - vanilla| / |vanilla|
    double hits = 0;      ///< cosine of the experts' hits in a pass and their hits under vanilla
  };
  Of rule, fixed, random;
  int64_t samples = 0;
};
/// How alike the hits of a layer's experts are in one deciding pass and in the next of a sequence.
struct HitLikeness {
  int layer = 0;
  double cosine = 0;
  int64_t samples = 0;
};
struct ExpertStudy {
  std::vector<UniqueExperts> unique;
  std::vector<HitLikeness> likeness;
  std::vector<CoresetQuality> coresets;
  /// Seconds of a layer's experts as per_assignment * (tokens * experts of each) + per_expert *
  /// distinct, by least squares over all calls; explained: R squared.
  double per_assignment = 0, per_expert = 0, explained = 0;
  double decided = 1;  ///< share of the tokens that the passes which were looked into decided
};
/// Decodes the examples one by one and looks into each layer of each deciding pass. Throws as
/// evaluate_tasks does.
ExpertStudy study_experts(const std::string& model, const RunOptions& options,
                          const ExpertsRequest& request, const std::stop_token& stop = {});
/// A JSON document.
std::string to_json(const ExpertStudy& study);

}  // namespace tessera
