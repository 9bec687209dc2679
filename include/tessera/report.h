#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/request.h"

namespace tessera {

/// The most bytes that were held at once, by what they were for, and of all together.
struct MemoryPeaks {
  int64_t weights = 0, activations = 0, kv = 0, buffers = 0, total = 0;
  bool operator==(const MemoryPeaks&) const = default;
};

/// Of a language model whose experts do not all fit into memory: asked for in calls of layers.
struct StreamedExperts {
  int64_t all = 0, resident = 0;  ///< of all layers together; that stay in memory at most
  int64_t hits = 0, misses = 0;   ///< that were there, or were read from the folder
  int64_t bytes = 0;              ///< that were read for them
};

/// What happened in a run.
struct Report {
  std::string version, model, plan, device, instruction_set;
  std::string unit;  ///< what multiplied bf16 on the CPU: "fma" or "dot"
  Precision precision = Precision::bf16;
  bool int8_experts = false;  ///< also where the folder holds them so, whatever the precision
  bool int4_experts = false;  ///< the folder holds them so
  int threads = 1, ranks = 1;
  std::vector<std::string> notes;         ///< what one should know about the way that the run took
  std::map<Phase, double> phase_seconds;  ///< load, denoise, decode
  std::vector<double> step_seconds;
  int forwards = 0;                 ///< forward passes of the transformer
  MemoryPeaks peak_bytes;           ///< of this request in rank 0's process
  int64_t peak_resident_bytes = 0;  ///< of the process, as the system counts
  double flops = 0;                 ///< of all ops on all ranks, previews left out
  /// What one rank held, computed and sent while it denoised. Weights that ranks of one process
  /// share count for each; a message is its receiver's from when that expects it.
  struct Rank {
    MemoryPeaks peak_bytes;
    double flops = 0;
    int64_t sent_bytes = 0;
    /// The same while it decoded, if it is one of those of Plan::vae.
    MemoryPeaks decode_peak_bytes{};
    double decode_flops = 0;
    /// The same while it encoded texts, if it is one of those that do.
    MemoryPeaks text_peak_bytes{};
    double text_flops = 0;
    std::optional<StreamedExperts> streamed{};  ///< of its experts; none: all were in memory
  };
  std::vector<Rank> per_rank;
  struct Layer {
    int block = 0;
    double mean_experts = 0;  ///< distinct experts read in a step, or for a patch, on average
    int64_t tokens = 0;       ///< of a step
    int64_t assignments = 0;  ///< that were sent to experts, in all steps
    int64_t assignments_changed = 0;  ///< of these: sent because a token's experts had changed
    std::vector<int64_t> ages;        ///< how often a result of age 0, 1, 2 was read
    int oldest = 0;                   ///< age of the oldest result that was read
  };
  std::vector<Layer> layers;
  /// How alike a layer of experts is in two neighbouring steps (GenerateRequest::compare_steps).
  struct Similarity {
    int layer = 0, step = 0;  ///< the later one
    double same_experts = 0;  ///< share of tokens that go to the same experts
    double outputs = 0;       ///< mean cosine of what the routed experts add
  };
  std::vector<Similarity> similarity;
  /// How wrong results of the step before would be, by their router score.
  struct StaleError {
    int layer = 0;
    double lowest_score = 0, highest_score = 0;  ///< the scores of a token's experts sum to 1
    int64_t assignments = 0;
    double error = 0;  ///< mean of |result - old result| / |result|
  };
  std::vector<StaleError> stale_errors;
  /// What ranks sent to each other, over all ranks; keyed by operation and layer (-1: none).
  struct Traffic {
    int64_t messages = 0, bytes = 0;
    double wait_seconds = 0;    ///< blocked until messages arrived
    double flight_seconds = 0;  ///< from the starts of receives to the arrivals of the messages
  };
  std::map<std::pair<std::string, int>, Traffic> traffic;
  /// How often an attention read the keys and values of a token that were 0, 1, ... steps old, over
  /// all ranks and calls; empty where none are kept.
  std::vector<int64_t> kv_ages;
  int64_t kept_row_bytes = 0;  ///< peak of expert rows kept between layers and steps, a rank
  /// Rows and results of experts that can have been on their way to one rank at once under
  /// moe=fused: of the layer and the rank with the most of them, and the bound of that, however
  /// tokens are routed. Bytes; 0 without moe=fused.
  struct Incast {
    int64_t most = 0, bound = 0;
  };
  Incast incast;
};
/// The report as a JSON document.
std::string to_json(const Report& report);

/// The images of a request and what happened on the way.
struct GenerateResult {
  std::vector<Image> images;   ///< with frames of videos in order; empty without decoding
  std::vector<float> latents;  ///< as --save-latents writes them
  std::vector<int64_t> latents_shape;
  int steps = 0;  ///< that were made, asked for or not
  float guidance = 1;
  std::string sampler;     ///< "rectified-flow", "ddpm", or the scheduler's class
  bool elsewhere = false;  ///< all of it is with the process of rank 0
  Report report;
};

/// One part of a model folder, as inspect shows it.
struct Component {
  std::string name, type, path;
  int64_t parameters = 0, file_bytes = 0;
  bool downloaded =
      true;  ///< false: its weights are not there; file_bytes: what its index announces
  std::map<std::string, std::string> facts;  ///< sizes, by the names of the configuration
};

/// What inspect computes about a model, without running it.
struct Inspection {
  std::string model, pipeline;
  std::string device = "cpu";  ///< or "cuda:0 (NVIDIA H200)"
  std::vector<Component> components;
  std::vector<std::string> class_names;
  std::vector<std::string> notes;                ///< what one should know about its files
  int64_t width = 0, height = 0, sequences = 0;  ///< of the run that the memory stands for
  /// The same of a language model: one prompt, its answer, and the tokens of a block. Of one that
  /// makes images of texts the tokens that each is padded to, at most.
  int64_t prompt_tokens = 0, answer_tokens = 0, block = 0;
  double flops_per_step = 0;  ///< or of a pass over all tokens
  /// Bytes on one rank that holds all: weights, activations, peak; text encoders of those that have
  /// them; of language models kv, too, which is part of activations. With a plan or a budget also
  /// those of a process under them, and `uneven`, if all tokens choose the experts of one rank.
  std::map<std::string, int64_t> memory;
  std::string
      unfit;  ///< why the run does not fit into the memory there is; "": it does, or unknown
  /// Expected on this machine: text, load, step, decode, whole, or of language models load and
  /// pass; empty where it was not measured.
  std::map<std::string, double> seconds;
  std::string expected;  ///< the same as a sentence
  /// What a rank of a plan will hold, in bytes, and do in a step: found by running the plan without
  /// weights. It is what Report::per_rank says of the run; where experts stand on several ranks, as
  /// if all got as many tokens each, or, where they are read while it runs, one rank all of them.
  struct Rank {
    int experts = 0;     ///< of each layer
    int64_t tokens = 0;  ///< of all its sequences
    int64_t weights = 0, activations = 0;
    int64_t kv = 0;       ///< keys and values that are kept
    int64_t buffers = 0;  ///< messages, and expert rows kept between layers, steps or halves
    int64_t total = 0;    ///< of all at once
    double flops = 0;     ///< of a step, or of a pass over all tokens
    int64_t sent = 0;     ///< bytes, in the same
    int64_t decode = 0;   ///< of all at once while it decodes, if it is one of those of Plan::vae
    int64_t text = 0;     ///< of all at once while it encodes texts, if it does
    bool operator==(const Rank&) const = default;
  };
  std::string plan;         ///< "" without one
  std::vector<Rank> ranks;  ///< of the plan, or of a run within a memory budget; else empty
};
/// The inspection as a JSON document.
std::string to_json(const Inspection& inspection);
/// What became of a folder as a JSON document.
std::string to_json(const QuantiseResult& made);

}  // namespace tessera
