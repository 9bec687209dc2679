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
#include "tessera/tokenize.h"
#include "tessera/version.h"
#include "tessera/words.h"

namespace tessera {

/// A model folder that is open for work. Many threads may ask it at once, and callbacks, too: what
/// a request computes with is its own, weights are shared, also by all models of a process that
/// read the same files; each is answered as alone, and, but for keep_parts, admitted as if alone.
/// Where ranks are processes all models over them take one request at a time, a second one is
/// Error(usage). A model that was moved from throws Error(usage).
class Model {
 public:
  /// Reads the folder's description and checks its parts; weights are loaded when first used.
  /// `model` is a folder in the diffusers or transformers layout, or the name of a shipped model.
  /// Throws Error(model) naming what is missing or wrong, Error(plan) for a plan that cannot run,
  /// Error(usage) for options that nothing takes, Error(cancelled) after a stop request.
  static Model open(const std::string& model, const RunOptions& options,
                    const std::stop_token& stop = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Noise to images. Throws Error(usage) for sizes, steps or classes that do not fit,
  /// Error(memory) when the estimate exceeds the machine, Error(cancelled) after a stop request.
  GenerateResult generate(const GenerateRequest& request, const RunControl& control = {}) const;
  /// One after the other, with the results in their order: those that each has alone. Under a plan
  /// with Plan::vae_apart the images of one are decoded while the next one is denoised, as those of
  /// one request are, sample by sample; then all are planned, admitted and their texts encoded
  /// before the first step, and an error or a stop ends all. The same errors.
  std::vector<GenerateResult> generate_all(std::span<const GenerateRequest> requests,
                                           const RunControl& control = {}) const;
  /// Runs one component on named tensors: `out` and traced ones; vae.encode also gives `mean`
  /// (which `out` is) and `logvar`, a language model `logits`; a moe_layer the tokens of each
  /// expert, i32 `counts`, and those within its capacity, `kept_counts`. VAEs and text encoders
  /// take no plan. Under one that lets samples get stale a pass is the first step, in which nothing
  /// is. Where ranks are processes the first one has the result and the file, others nothing.
  /// Throws Error(usage) for what does not fit, Error(cancelled) after a stop request.
  NamedTensors forward(const ForwardRequest& request, const RunControl& control = {}) const;
  /// Writes the folder again with the weights of routed experts as int8, a scale a row: a run of
  /// that folder has the numbers of Precision::int8, and quantises nothing; or as int4, a scale for
  /// each 32 elements of a row, which runs on CPUs. All other files are
  /// copied, but for those of the same weights in other forms, and what begins with a dot. Throws
  /// Error(usage) for an output that exists, lies in the folder or cannot be written, and models
  /// without such weights; Error(cancelled) after a stop request. Nothing half-written stays.
  QuantiseResult quantise(const QuantiseRequest& request, const RunControl& control = {}) const;
  /// Throws what generate() or complete() refuses a request for before it reads a weight, memory
  /// among it: Error(memory). Many may be checked while others run, also where ranks are processes,
  /// of which it looks at the memory of the caller's.
  void check(const GenerateRequest& request, const std::stop_token& stop = {}) const;
  void check(const CompleteRequest& request, const std::stop_token& stop = {}) const;
  /// Number of classes that a request may name; 0: a model that takes none.
  int64_t classes() const;
  /// Whether it makes videos.
  bool makes_videos() const;
  /// Frames a second of the videos that it was trained on.
  double frame_rate() const;
  /// Prompts to text, by a masked diffusion language model. Throws Error(usage) for prompts and
  /// options that do not fit, Error(cancelled) after a stop request.
  CompleteResult complete(const CompleteRequest& request,
                          const CompleteControl& control = {}) const;
  /// Texts to the tokens that a run would see, by every tokenizer of the folder. Throws
  /// Error(usage) for models without one, Error(model) for one that is malformed, Error(cancelled)
  /// after a stop request.
  std::vector<Tokenized> tokenize(const TokenizeRequest& request,
                                  const std::stop_token& stop = {}) const;
  /// Parts, shapes and parameters, and the memory a run would take. Throws Error(cancelled) after a
  /// stop request.
  Inspection inspect(const GenerateRequest& request = {}, const std::stop_token& stop = {}) const;

  /// What an open model holds; known to the library alone.
  struct State;

 private:
  explicit Model(std::unique_ptr<State> state);
  /// Throws Error(usage) for a model that was moved from.
  State& state() const;
  std::unique_ptr<State> state_;
};

/// Inspection of a model known by its size's name ("dit_moe_s", "_b", "_l", "_xl", "_g"), without
/// files. Throws Error(model) for an unknown name, listing the known ones.
Inspection inspect_by_name(const std::string& name, const RunOptions& options,
                           const GenerateRequest& request = {}, const std::stop_token& stop = {});
/// Names that inspect_by_name knows.
std::vector<std::string> known_model_sizes();

/// Writes an image as PNG, the parameters as text chunks; beside the target, then renamed. Throws
/// Error(usage) when it cannot, Error(cancelled) after a stop request, as the others do.
void save_png(const Image& image, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& text = {},
              const std::stop_token& stop = {});
/// Writes an image as lossless WebP, the parameters in its XMP part and Exif user comment.
void save_webp(const Image& image, const std::string& path,
               const std::vector<std::pair<std::string, std::string>>& text = {},
               const std::stop_token& stop = {});
/// Writes an image as JPEG of quality 95, "parameters" in its Exif user comment.
void save_jpeg(const Image& image, const std::string& path,
               const std::vector<std::pair<std::string, std::string>>& text = {},
               const std::stop_token& stop = {});
/// Writes frames of one size as an MP4 video of `rate` frames a second, the parameters as its
/// comment.
void save_mp4(std::span<const Image> frames, double rate, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& text = {},
              const std::stop_token& stop = {});
/// Writes text the same way.
void save_text(const std::string& text, const std::string& path);

}  // namespace tessera
