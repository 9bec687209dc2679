#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "load/diffusers_folder.h"
#include "load/weight_store.h"
#include "models/registry.h"
#include "models/text/text_encoder.h"
#include "models/vae/autoencoder_kl.h"
#include "models/vae/cogvideox_vae.h"
#include "parallel/assemble.h"
#include "pipeline/device.h"
#include "pipeline/language.h"
#include "tensor/scope.h"
#include "tessera/engine.h"

namespace tessera::pipeline {

/// What an open model holds: the description of its folder, and its parts once they were needed.
struct ModelState {
  RunOptions options;
  DeviceChoice place;  ///< where parts compute; latents and pictures are the host's
  std::string name;    ///< as the caller gave it
  load::ModelFolder folder;
  std::unique_ptr<models::Recipe> recipe;  ///< null: a folder without a transformer
  models::Recipe::Defaults defaults;       ///< the recipe's, or what the folder says of itself
  std::unique_ptr<Language> language;      ///< null: not a language model
  std::vector<std::string> class_names;    ///< empty: classes have numbers only
  std::unique_ptr<base::ThreadPool> pool;  ///< all threads
  /// Of each rank that is a thread of this process, where there are several.
  struct Rank {
    std::unique_ptr<base::ThreadPool> pool;  ///< its part of all threads
    std::shared_ptr<tensor::MemoryTracker> memory;
    std::shared_ptr<tensor::Meter> meter;
  };
  std::vector<Rank> ranks;
  std::shared_ptr<tensor::MemoryTracker> memory = std::make_shared<tensor::MemoryTracker>();
  std::shared_ptr<tensor::Meter> meter = std::make_shared<tensor::Meter>();  ///< both of all ranks
  std::vector<std::unique_ptr<nn::Denoiser>> denoisers;  ///< by rank of an expert group
  int64_t foreseen_tokens = 0;       ///< of the largest run of a language model that fits
  int64_t resident_blocks = -1;      ///< of the transformer, the others streamed; -1: all
  std::atomic<bool> working{false};  ///< on a request

  /// What surrounds the work of a rank; -1: of the process.
  tensor::Scope scope(int rank = -1) const;
  nn::DType dtype() const;
  tensor::Device device() const { return place.device; }
  /// Of routed experts' weights, if it is another.
  std::optional<nn::DType> expert_dtype() const;
  bool has_vae() const { return folder.has("vae"); }
  /// Whether the VAE is one of videos.
  bool video() const;
  /// Latent pixels -> pixels.
  int64_t vae_factor() const;
  /// Throws Error(model) naming every tensor that is missing or of another shape than the
  /// configuration says; reads no weight. They return a sentence that names tensors which nothing
  /// reads, or "".
  std::string check_transformer() const;
  std::string check_vae() const;
  /// What plans need to know of the transformer; reads no file.
  nn::Geometry geometry() const;
  /// The transformer with the experts of a rank, checked and loaded on first use.
  nn::Denoiser& transformer(int rank = 0);
  /// The VAE's halves, checked and loaded for this call; released with the result.
  std::unique_ptr<models::AutoencoderKL> load_vae() const;
  std::unique_ptr<models::AutoencoderKLEncoder> load_vae_encoder() const;
  std::unique_ptr<models::CogVideoXVae> load_video_vae() const;
  std::unique_ptr<models::CogVideoXVaeEncoder> load_video_vae_encoder() const;
  /// A text encoder of the folder, its names checked; it reads weights while it runs. `note` gets a
  /// sentence that names tensors which nothing reads, if there are any.
  std::unique_ptr<models::TextEncoder> load_text_encoder(
      const std::string& part, const std::function<void(const std::string&)>& note = {}) const;
};

/// Reads the folder and starts the device; as Model::open.
void open_model(const std::string& model, const RunOptions& options, ModelState& state);

/// One request at a time: taken by what changes a model. Throws Error(usage) when a callback, or
/// another thread, asks a model that works.
class Working {
 public:
  explicit Working(ModelState& state);
  ~Working() { state_.working = false; }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  ModelState& state_;
};

/// The one store of packed weights of the process.
const load::WeightStore& weight_store();

/// Ops and what they do, by name.
using Work = std::map<std::string, tensor::Meter::Entry>;

/// Work and memory of one run, by running the model on meta; parts are in memory one after the
/// other.
struct Estimate {
  double flops_per_step = 0;
  Work work;                                       ///< of a step
  int64_t weights = 0, activations = 0, peak = 0;  ///< bytes
  int64_t parameters = 0;
};
/// `vae`: its configuration, or null; `conditioning`: of all rows, or null for the longest texts.
/// Nothing is read but the sizes in `recipe`. Throws Error(memory) for more tokens than any machine
/// could hold.
Estimate estimate(const models::Recipe& recipe, nn::DType dtype, const nn::TokenLayout& layout,
                  int pictures, bool branches, const base::Json* vae,
                  const nn::Conditioning* conditioning = nullptr,
                  std::optional<nn::DType> experts = std::nullopt);
/// How a run computes, and in what its routed experts' weights are, if in something else.
nn::DType dtype_of(const RunOptions& options);
std::optional<nn::DType> expert_dtype_of(const RunOptions& options);

/// Memory of each rank of a plan, on meta. Throws Error(plan) for a plan that cannot run this.
std::vector<Inspection::Rank> rank_memory(const models::Recipe& recipe, const RunOptions& options,
                                          const nn::TokenLayout& layout,
                                          const parallel::Workload& workload);

/// Pixels of a side -> latent pixels; 0 stays 0 (as trained). Throws Error(usage) naming --`side`
/// and the nearest sizes that fill patches of so many latent pixels.
int64_t latent_pixels(int64_t pixels, int64_t factor, int64_t patch, const char* side);

/// The folder of a model. A name without '/' that is no folder here is looked up where shipped
/// models are: TESSERA_MODELS, else the folder of the source tree; "organisation/name" in the hub's
/// cache.
std::string resolve_model(const std::string& model);

/// Class numbers for names or numbers. Throws Error(usage) naming what does not exist.
std::vector<int> class_numbers(const std::vector<std::string>& wanted,
                               const std::vector<std::string>& names, int64_t count);

/// Noise f32 of a shape, in the numbers of the source.
class Noise {
 public:
  Noise(NoiseSource source, uint64_t seed);
  ~Noise();
  tensor::Tensor draw(const tensor::Shape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::pipeline
