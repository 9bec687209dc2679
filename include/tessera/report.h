#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/request.h"
#include "tessera/traffic.h"

namespace tessera {

/// The most bytes held at once, by their purpose, and in total.
struct MemoryPeaks {
  int64_t weights = 0, activations = 0, kv = 0, buffers = 0, total = 0;
  bool operator==(const MemoryPeaks&) const = default;
};

/// Experts of a language model that are read on demand, counted in calls of layers.
struct StreamedExperts {
  int64_t all = 0, resident = 0;  ///< experts of all layers; in memory at most
  int64_t hits = 0, misses = 0;   ///< found in memory, or read from the folder
  int64_t bytes = 0;              ///< read from the folder
};

/// Results and costs of a run.
struct Report {
  std::string version, model, plan, device, instruction_set;
  std::string unit;  ///< unit of bf16 products on the CPU: "fma" or "dot"
  Precision precision = Precision::bf16;
  bool int8_experts = false;  ///< also if the folder stores int8, for any precision
  bool int4_experts = false;  ///< from the folder, or of the request
  /// Quantised products: the number of matrices of each component in "int8" and "int4".
  std::map<std::string, std::map<std::string, int64_t>> products{};
  int threads = 1, ranks = 1;
  std::vector<std::string> notes;         ///< notes on the course of the run
  std::map<Phase, double> phase_seconds;  ///< load, denoise, decode
  std::vector<double> step_seconds;
  int forwards = 0;                 ///< forward passes of the transformer
  MemoryPeaks peak_bytes;           ///< this request, in rank 0's process
  int64_t peak_resident_bytes = 0;  ///< the process, as the system counts
  double flops = 0;                 ///< all ops on all ranks, without previews
  /// Memory, work and traffic of a rank while it denoised. Weights shared by ranks of a process
  /// count for each; a message counts for its receiver from the moment of its expectation.
  struct Rank {
    MemoryPeaks peak_bytes;
    double flops = 0;
    int64_t sent_bytes = 0;
    /// The same while it decoded, for ranks of Plan::vae.
    MemoryPeaks decode_peak_bytes{};
    double decode_flops = 0;
    /// The same while it encoded texts, for ranks with encoders.
    MemoryPeaks text_peak_bytes{};
    double text_flops = 0;
    std::optional<StreamedExperts> streamed{};  ///< this rank's experts; none: all were in memory
  };
  std::vector<Rank> per_rank;
  struct Layer {
    int block = 0;
    double mean_experts = 0;          ///< distinct experts read in a step or for a patch, mean
    int64_t tokens = 0;               ///< in a step
    int64_t assignments = 0;          ///< sent to experts, in all steps
    int64_t assignments_changed = 0;  ///< the part sent because experts of a token changed
    std::vector<int64_t> ages;        ///< reads of results of age 0, 1, 2
    int oldest = 0;                   ///< age of the oldest result read
  };
  std::vector<Layer> layers;
  /// Tokens of each expert, over all layers, steps and ranks, as PredictionRequest::expert_load;
  /// empty without experts.
  std::vector<int64_t> expert_load;
  /// Similarity of a layer of experts in two neighbouring steps (GenerateRequest::compare_steps).
  struct Similarity {
    int layer = 0, step = 0;  ///< step: the later of both
    double same_experts = 0;  ///< share of tokens with the same experts
    double outputs = 0;       ///< mean cosine of the routed experts' sums
  };
  std::vector<Similarity> similarity;
  /// Errors of the previous step's results, by router score.
  struct StaleError {
    int layer = 0;
    double lowest_score = 0, highest_score = 0;  ///< scores of a token's experts sum to 1
    int64_t assignments = 0;
    double error = 0;  ///< mean of |result - old result| / |result|
  };
  std::vector<StaleError> stale_errors;
  /// Traffic between ranks, over all ranks, by operation and layer (-1: none).
  struct Traffic {
    int64_t messages = 0, bytes = 0;
    double wait_seconds = 0;    ///< blocked until messages arrived
    double flight_seconds = 0;  ///< from the starts of receives to the arrivals of the messages
    TrafficKind kind = TrafficKind::plan;
  };
  std::map<std::pair<std::string, int>, Traffic> traffic;
  /// Reads of keys and values 0, 1, ... steps old by attention, over all ranks and calls; empty
  /// without cached keys.
  std::vector<int64_t> kv_ages;
  int64_t kept_row_bytes = 0;  ///< peak of expert rows kept between layers and steps, on a rank
  /// Launches of own kernels on GPUs while ranks denoised, over all ranks, by the operation that
  /// asked for them; "fused experts" are layers under moe=fused. Products of libraries are not
  /// counted. Empty on CPUs.
  std::map<std::string, int64_t> launches;
  /// Rows and results of experts under way to a rank at once under moe=fused: for the layer
  /// and rank with the largest amount, and its bound for any routing. Bytes; 0 without
  /// moe=fused.
  struct Incast {
    int64_t most = 0, bound = 0;
  };
  Incast incast;
  /// Steps of a request with GenerateRequest::cache. Blocks are counted from the first reusable
  /// one: the refining blocks of Z-Image always run.
  struct Reused {
    std::string rule;  ///< as parse_step_cache reads it
    /// By step: blocks whose attention ran. Requests in parts: part by part.
    std::vector<std::vector<int>> computed_blocks;
    std::vector<double> changes;  ///< by step: the number of the decision; NaN: none
    /// The same of the negative branch of guidance, where branches decide apart (StepCache::apart),
    /// and the above is of the conditional one; else empty.
    std::vector<std::vector<int>> negative_computed_blocks{};
    std::vector<double> negative_changes{};
    int64_t blocks_computed = 0, blocks_reused = 0;  ///< branches that decide apart count twice
    double flops_saved = 0;                          ///< on all ranks
  };
  std::optional<Reused> reused{};
};
/// The report as a JSON document.
std::string to_json(const Report& report);

/// The images of a request, and its report.
struct GenerateResult {
  std::vector<Image> images;   ///< frames of videos in order; empty without decoding
  std::vector<float> latents;  ///< as --save-latents writes them
  std::vector<int64_t> latents_shape;
  int steps = 0;  ///< steps of the run
  float guidance = 1;
  std::string sampler;     ///< "rectified-flow", "ddpm", or the scheduler's class
  bool elsewhere = false;  ///< all of the result is with the process of rank 0
  Report report;
};

/// A part of a model folder, for inspect.
struct Component {
  std::string name, type, path;
  int64_t parameters = 0, file_bytes = 0;
  bool downloaded =
      true;  ///< false: the weights are missing, and file_bytes is the size by their index
  std::map<std::string, std::string> facts;  ///< sizes, by the names of the configuration
};

/// The results of inspect, without a run.
struct Inspection {
  std::string model, pipeline;
  std::string device = "cpu";  ///< or "cuda:0 (NVIDIA H200)"
  std::vector<Component> components;
  std::vector<std::string> class_names;
  std::vector<std::string> notes;                ///< notes on the files
  int64_t width = 0, height = 0, sequences = 0;  ///< the run behind the memory
  /// For a language model: one prompt, its answer, and the tokens of a block. For text-to-image
  /// models: the most tokens of a padded text.
  int64_t prompt_tokens = 0, answer_tokens = 0, block = 0;
  bool draws = false;         ///< a language model whose answers depend on the seed in any case
  double flops_per_step = 0;  ///< or of a pass over all tokens
  /// Bytes on a rank that holds everything: weights, activations, peak, and text encoders; for
  /// language models kv, a part of activations. With a plan or a budget also those of a process,
  /// and `uneven`: all tokens choose the experts of a single rank.
  std::map<std::string, int64_t> memory;
  std::string
      unfit;  ///< the reason against a run in the present memory; "": no reason, or not known
  /// Expected on this machine: text, load, step, decode, whole; for language models load and pass.
  /// Empty without a measurement.
  std::map<std::string, double> seconds;
  std::string expected;  ///< the same as a sentence
  /// Predicted memory in bytes and work of a rank in a step, from a run without weights. Matches
  /// Report::per_rank; with experts on several ranks it assumes equal load, or all tokens on a
  /// single rank if experts are read on demand.
  struct Rank {
    int experts = 0;     ///< in each layer
    int64_t tokens = 0;  ///< tokens of all sequences
    int64_t weights = 0, activations = 0;
    int64_t kv = 0;       ///< cached keys and values
    int64_t buffers = 0;  ///< messages, and expert rows kept between layers, steps or halves
    int64_t total = 0;    ///< all at once
    double flops = 0;     ///< a step, or a pass over all tokens
    int64_t sent = 0;     ///< bytes in the same
    int64_t decode = 0;   ///< all at once during decoding, for ranks of Plan::vae
    int64_t text = 0;     ///< all at once during text encoding
    bool operator==(const Rank&) const = default;
  };
  std::string plan;         ///< "" without a plan
  std::vector<Rank> ranks;  ///< ranks of the plan, or a run within a budget; else empty
};
/// The inspection as a JSON document.
std::string to_json(const Inspection& inspection);
/// The result of quantisation as a JSON document.
std::string to_json(const QuantiseResult& made);

}  // namespace tessera
