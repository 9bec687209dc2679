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

/// Plans compared on one model: the quality cost of staleness.
struct EvalRequest {
  std::vector<Plan> plans;   ///< each beside the synchronous plan, with the same noise
  GenerateRequest generate;  ///< steps, guidance, scheduler, first seed; classes: all in turn
  int images = 320;          ///< for each plan
  int batch = 32;            ///< images in one request
  int unpaired_from = 1000;  ///< images; fewer give no distribution
};
/// The quality of a plan: means, and half widths of 95 % confidence intervals.
struct PlanQuality {
  std::string plan;  ///< "" is the synchronous plan
  int images = 0;
  double latent_error = 0, latent_error_half = 0;  ///< |latent - synchronous| / |synchronous|
  double psnr = 0, psnr_half = 0;                  ///< images, dB, at most 100
  double recognised = -1;  ///< share of images with the requested content; -1: unknown
  double recognised_change = 0, recognised_change_half = 0;  ///< to the synchronous, image by image
  /// All images against the real images in the critic's reference.safetensors; -1: no such file, or
  /// fewer images than unpaired_from.
  double frechet = -1, spatial_frechet = -1, inception_score = -1, precision = -1, recall = -1;
  int64_t assignments = 0;       ///< sent to experts; the bytes between ranks follow them
  double assignments_share = 1;  ///< relative to the synchronous plan
  double seconds = 0;            ///< time of all requests
  int64_t peak_bytes = 0;        ///< largest memory of a request
};
/// Runs the synchronous plan and all others on one model; `line` receives each result when ready,
/// the synchronous plan first. Throws as Model::generate does.
void evaluate(const std::string& model, const RunOptions& options, const EvalRequest& request,
              const std::function<void(const PlanQuality&)>& line, const std::stop_token& stop);

/// Time of requests of several sizes under several plans.
struct SpeedRequest {
  std::vector<Plan> plans;                       ///< none: the synchronous plan
  std::vector<int> batches{1, 2, 4, 8, 16, 32};  ///< images in a request
  GenerateRequest generate;                      ///< steps, guidance, scheduler, first seed
  int rounds = 3;                                ///< runs of all plans in turn; the median counts
};
struct PlanSpeed {
  std::string plan;
  int batch = 0;
  double seconds = 0;            ///< a request: denoising and decoding
  double images_per_second = 0;  ///< batch / seconds
  int64_t peak_bytes = 0;        ///< all ranks and classes
};
/// Measures every plan with every batch; `line` receives results by batch, then by plan. A single
/// model is open at a time; its opening and first short request do not count. Throws as
/// Model::generate does, Error(usage) for batches or rounds below 1.
void measure_speed(const std::string& model, const RunOptions& options, const SpeedRequest& request,
                   const std::function<void(const PlanSpeed&)>& line, const std::stop_token& stop);

/// Probes the machine's limits and each kernel's share of them; for a GPU, the limits of a library
/// product of 8192 x 8192 x 8192 and of a copy in its memory. `device`: as in RunOptions.
void bench_kernels(int threads, const std::function<void(const std::string& json)>& line,
                   const DeviceOption& device = {});

/// JSON lines with prompt, answer and task.
struct TaskSource {
  std::string name;                 ///< a file; "": tasks.jsonl of the model
  std::optional<std::string> text;  ///< the lines themselves: `name` states their origin
};

/// Tasks with one right answer each, for a language model under rules of expert selection (DES).
struct TaskRequest {
  CompleteRequest complete;  ///< decoding; prompts, select and max_tokens are unused
  /// Rules beside vanilla. With `tune`, rules with different values form a sweep, a name alone
  /// ("des-vote", "topk,weights=A") stands for a sweep, and none for all.
  std::vector<std::string> selects;
  TaskSource data;
  bool number = false;     ///< compares the last number of answer and text; else the whole texts
  int64_t max_tokens = 0;  ///< for every prompt; 0: generation_config.json's, or 128
  int limit = 0;           ///< examples; 0: all
  int batch = 16;          ///< prompts of a batch
  /// Share of vanilla's accuracy to lose at most: finds the fewest experts for each rule on every
  /// other example; the remaining examples judge the result.
  std::optional<double> tune;
};

/// The result of a rule on the tasks.
struct TaskQuality {
  std::string select;  ///< as read by parse_selection
  int examples = 0;
  double accuracy = 0, accuracy_low = 0, accuracy_high = 1;  ///< Wilson's 95 % interval
  int64_t gained = 0, lost = 0;  ///< right here but not under vanilla, and the reverse
  double p = 1;                  ///< McNemar's exact test of both
  double ruled = 1;              ///< share of tokens decided by passes under the rule
  /// Distinct experts of a sequence's tokens, mean over layers and the passes under the rule.
  double experts = 0;
  double experts_share = 1;  ///< relative to vanilla
  double batch_experts = 0;  ///< distinct experts of a batch in a layer, mean over its passes
  double passes = 0;         ///< forward passes for an example
  double bytes = 0;          ///< moved for an example, as counted by ops; in batches
  double milliseconds = 0;   ///< for an example, in batches
  std::vector<std::pair<std::string, double>> tasks;  ///< accuracy by task
};

/// Runs vanilla and each rule on the same examples; `line` receives each result when ready.
/// With `tune`: the result of the other half for each rule with the fewest experts at 1 -
/// `tune` of vanilla's accuracy (left out if none reaches the limit), in the order of rules.
/// Throws Error(usage) for invalid data and rules, Error(model) for a model without
/// language.
std::vector<TaskQuality> evaluate_tasks(const std::string& model, const RunOptions& options,
                                        const TaskRequest& request,
                                        const std::function<void(const TaskQuality&)>& line,
                                        const std::stop_token& stop = {});
/// A JSON object in a single line.
std::string to_json(const TaskQuality& quality);

/// Experts used by a model's blocks, and the part kept by coresets, under vanilla routing.
struct ExpertsRequest {
  CompleteRequest complete;          ///< decoding
  std::vector<std::string> selects;  ///< rules with a coreset; none: des-seq, des-vote, des-max
  TaskSource data;
  int64_t max_tokens = 0;  ///< as in TaskRequest
  int limit = 24;          ///< examples; 0: all
};
/// Distinct experts of the first tokens of a pass, beside M(1 - (1 - K/M)^N) for N tokens with K of
/// M experts by independent choices.
struct UniqueExperts {
  int layer = 0;
  int64_t tokens = 0;
  double distinct = 0, independent = 0;
  int64_t samples = 0;
};
/// A rule's coresets in a layer, beside others of the same size: the layer's busiest experts over
/// all data (fixed), and random experts.
struct CoresetQuality {
  std::string select;
  int layer = 0;
  double size = 0;  ///< experts, mean
  struct Of {
    double recall = 0;    ///< share of vanilla's choices inside the coreset
    double residual = 0;  ///< |routed output - vanilla| / |vanilla|
    double hits = 0;      ///< cosine of the experts' hits in a pass and under vanilla
  };
  Of rule, fixed, random;
  int64_t samples = 0;
};
/// Similarity of a layer's expert hits in a deciding pass and the next of a sequence.
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
  double decided = 1;  ///< share of tokens decided in the examined passes
};
/// Decodes the examples in turn and examines each layer of each deciding pass. Throws as
/// evaluate_tasks does.
ExpertStudy study_experts(const std::string& model, const RunOptions& options,
                          const ExpertsRequest& request, const std::stop_token& stop = {});
/// A JSON document.
std::string to_json(const ExpertStudy& study);

}  // namespace tessera
