#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/complete.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tessera/report.h"
#include "tessera/request.h"
#include "tessera/run_files.h"
#include "tessera/save.h"
#include "tessera/tokenize.h"
#include "tessera/version.h"
#include "tessera/weight_files.h"
#include "tessera/words.h"

namespace tessera {

/// An open model folder. Several threads and callbacks may send requests at once: state belongs to
/// a request, weights are shared among all models of a process with the same files. Each result
/// equals that of the request alone; admission, too, except with keep_parts. Models over processes
/// take one request at a time; a second request is Error(usage), and so is any call on a moved-from
/// model.
class Model {
 public:
  /// Reads the folder's description and checks its parts; weights are loaded at first use. `model`
  /// is a folder in the diffusers or transformers layout, or the name of a shipped model. Throws
  /// Error(model) for missing or wrong parts, Error(plan) for an invalid plan, Error(usage) for
  /// options without effect, Error(cancelled) after a stop request. `files` replace weights of the
  /// folder: a file for no part of it is Error(usage), an unreadable one Error(model).
  static Model open(const std::string& model, const RunOptions& options,
                    const std::stop_token& stop = {}, const WeightFiles& files = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Generates images or videos. Throws Error(usage) for invalid sizes, steps or classes,
  /// Error(memory) above the machine's memory, Error(cancelled) after a stop request.
  GenerateResult generate(const GenerateRequest& request, const RunControl& control = {}) const;
  /// Runs requests in order; each result equals that of the request alone. Under a plan with
  /// Plan::vae_apart, images of a request are decoded while the next request is denoised. Then all
  /// requests are planned, admitted and encoded before the first step, and an error or a stop ends
  /// all. Throws as generate() does.
  std::vector<GenerateResult> generate_all(std::span<const GenerateRequest> requests,
                                           const RunControl& control = {}) const;
  /// Runs one component on named tensors and returns `out` and traced tensors. vae.encode also
  /// returns `mean` (equal to `out`) and `logvar`; a language model `logits`; a moe_layer the
  /// tokens of each expert, i32 `counts` and `kept_counts` (within the capacity). VAEs and text
  /// encoders take no plan. Under a stale plan a pass is the first step, without stale data. Where
  /// ranks are processes, rank 0 alone returns tensors and writes the file. Throws Error(usage) for
  /// invalid inputs, Error(cancelled) after a stop request.
  NamedTensors forward(const ForwardRequest& request, const RunControl& control = {}) const;
  /// Writes the folder again with routed experts in int8 (a scale a row: the numbers of
  /// Precision::int8) or in int4 (a scale for each 32 elements of a row, CPUs only). Other
  /// files are copied, except other forms of the same weights and hidden files. Throws
  /// Error(usage) for an output that exists, lies in the folder or cannot be written, and for
  /// models without such weights; Error(cancelled) after a stop request. Nothing half-written
  /// stays.
  QuantiseResult quantise(const QuantiseRequest& request, const RunControl& control = {}) const;
  /// Throws the errors by which generate() or complete() refuses a request before reading a weight,
  /// including Error(memory). Safe beside running requests, also with processes: then the memory of
  /// the calling process counts.
  void check(const GenerateRequest& request, const std::stop_token& stop = {}) const;
  void check(const CompleteRequest& request, const std::stop_token& stop = {}) const;
  /// Number of classes; 0: the model takes no classes.
  int64_t classes() const;
  /// Whether it makes videos.
  bool makes_videos() const;
  /// Frames a second of the training videos.
  double frame_rate() const;
  /// Generates text with a masked diffusion language model. Throws Error(usage) for invalid prompts
  /// and options, Error(cancelled) after a stop request.
  CompleteResult complete(const CompleteRequest& request,
                          const CompleteControl& control = {}) const;
  /// Tokenizes texts as a run would, with every tokenizer of the folder. Throws Error(usage) for
  /// models without a tokenizer, Error(model) for a malformed one, Error(cancelled) after a stop
  /// request.
  std::vector<Tokenized> tokenize(const TokenizeRequest& request,
                                  const std::stop_token& stop = {}) const;
  /// Parts, shapes and parameters of the model, and the memory of a run. Throws Error(cancelled)
  /// after a stop request.
  Inspection inspect(const GenerateRequest& request = {}, const std::stop_token& stop = {}) const;

  /// The open model; known to the library alone.
  struct State;

 private:
  explicit Model(std::unique_ptr<State> state);
  /// Throws Error(usage) for a moved-from model.
  State& state() const;
  std::unique_ptr<State> state_;
};

/// Inspects a model by the name of its size ("dit_moe_s", "_b", "_l", "_xl", "_g"), without files.
/// Throws Error(model) for an unknown name, with the known names.
Inspection inspect_by_name(const std::string& name, const RunOptions& options,
                           const GenerateRequest& request = {}, const std::stop_token& stop = {});
/// Names that inspect_by_name knows.
std::vector<std::string> known_model_sizes();

}  // namespace tessera
