#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/ranks.h"
#include "load/diffusers_folder.h"
#include "load/meta_weights.h"
#include "load/weight_store.h"
#include "models/moe_layer.h"
#include "models/registry.h"
#include "runtime/adapters.h"
#include "runtime/device.h"
#include "runtime/kept_parts.h"
#include "runtime/language.h"
#include "runtime/loaded.h"
#include "runtime/remembered.h"
#include "runtime/residents.h"
#include "runtime/workers.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// How a run computes, and in what its routed experts' weights are, if in something else: as was
/// asked, or as the folder holds them.
nn::DType dtype_of(const RunOptions& options);
std::optional<nn::DType> expert_dtype_of(const RunOptions& options,
                                         const load::ModelFolder& folder);
/// Rules that quantise weights at load; on a GPU only routed experts. Throws Error(usage).
load::QuantiseRules rules_of(const RunOptions& options);

/// What an open model is: the description of its folder, what it computes with, and its networks
/// once they were needed. Requests on many threads share it; what is theirs is in their Job.
struct ModelState {
  /// Of no other open model, also of those that are not any more.
  std::shared_ptr<const void> identity = std::make_shared<const char>();
  RunOptions options;
  DeviceChoice place;  ///< where parts compute; latents and images are the host's
  std::string name;    ///< as the caller gave it
  WeightFiles files;   ///< in place of weights of the folder
  load::ModelFolder folder;
  std::optional<models::PipelineSpec> spec;     ///< none: a folder without a transformer
  models::PipelineSpec::Defaults defaults;      ///< the spec's, or what the folder says of itself
  std::unique_ptr<Language> language;           ///< null: not a language model
  std::optional<models::MoeLayerConfig> layer;  ///< none: not a moe_layer
  std::vector<std::string> class_names;         ///< empty: classes have numbers only
  Workers workers;
  Loaded<nn::Denoiser> transformers;  ///< by parallel::portion_number
  mutable KeptParts kept;             ///< of RunOptions::keep_parts, as far as memory allows
  /// The last run of a language model that was seen to fit: its tokens, those of its largest pass,
  /// and those that a pass decides; bytes of the process, and of weights.
  struct {
    std::mutex mutex;
    std::array<int64_t, 3> size{};
    std::array<int64_t, 2> bytes{};
  } foreseen;
  /// Bytes of a run that makes images: of the process, at most and while texts are encoded, of the
  /// weights of the transformer and the VAE, and whether the former fit beside the decoding.
  struct Fitting {
    int64_t process = 0, text = 0, transformer = 0, vae = 0;
    bool beside = false;
  };
  /// Of those that were seen to fit whole, by what their memory depends on.
  Remembered<std::string, Fitting> fitting;
  /// With RunOptions::keep_parts, on a CPU: among the others of the process.
  std::optional<Resident> residence;

  nn::DType dtype() const { return dtype_of(options); }
  tensor::Device device() const { return place.device; }
  /// Of its plan, as this process has them.
  cluster::Ranks ranks() const { return cluster::Ranks::of(options, place.device); }
  std::optional<nn::DType> expert_dtype() const { return expert_dtype_of(options, folder); }
  /// Whether they are in int4, which products in int8 take as they are.
  bool int4_experts() const;
  /// Whether experts become int8 whenever they are read: the folder holds them in something else.
  bool quantises_experts() const;
  /// Whether other products do.
  bool quantises_products() const;
  bool has_vae() const { return folder.has("vae"); }
  /// What the configuration of the VAE describes. Throws Error(model).
  models::VaeSpec vae() const;
  /// Whether the VAE is one of videos.
  bool video() const { return has_vae() && vae().video; }
  /// Pixels of a side for one of the latent; 8 without a VAE.
  int64_t vae_factor() const { return has_vae() ? vae().factor : 8; }
  /// Throws Error(model) naming every tensor that is missing or of another shape than the
  /// configuration says; reads no weight, and of parts that are kept in memory files once. They
  /// return a sentence that names tensors which nothing reads, or "".
  std::string check_transformer() const;
  std::string check_vae() const;
  std::string check_text_encoder(const std::string& part) const;
  /// What plans need to know of the transformer; reads no file, and builds it on meta once.
  nn::Geometry geometry() const;
  /// Those of a part; on meta as the files have them, or would have.
  std::shared_ptr<const nn::Weights> weights_of(const std::string& part) const;
  std::shared_ptr<const load::MetaWeights> meta_weights_of(const std::string& part) const;
  /// The files of a part, with the rules of quantising at load.
  load::TensorSet tensors_of(const std::string& part) const;
  /// The forms of the matrices of the transformer or a text encoder. `experts`: dtype of routed
  /// experts, if not the model's.
  std::map<std::string, ops::WeightForm> forms_of(
      const std::string& part, const std::shared_ptr<const load::MetaWeights>& weights,
      std::optional<nn::DType> experts) const;
  /// The number of matrices for products with int8 activations, by "int8" and "int4".
  std::map<std::string, int64_t> products_of(const std::string& part) const;
  /// The transformer, and the text encoders that the pipeline runs and the folder has.
  std::vector<std::string> parts_with_products() const;
  /// What a rank computes of it, and under shard= its part of each of its blocks.
  nn::Portion portion(int rank) const;
  nn::Shard shard_of(int rank) const;
  /// A rank's transformer over these weights, of which with `resident` from 0 on so many blocks
  /// stay.
  std::unique_ptr<nn::Denoiser> make_transformer(int rank, int64_t resident,
                                                 const std::shared_ptr<const nn::Weights>& weights,
                                                 const Adapters* adapters = nullptr) const;
  /// The transformer with the experts of a rank, checked and loaded on first use; with `resident`
  /// from 0 on, so many of its blocks stay in memory. While it is held, it counts with what the
  /// scope and the rank's meter count.
  std::shared_ptr<const nn::Denoiser> transformer(int rank = 0, int64_t resident = -1,
                                                  const RunMeters* meters = nullptr,
                                                  const Adapters* adapters = nullptr);
  /// Bytes of what stays between requests, and its end.
  int64_t kept_bytes() const;
  void release_kept();
  /// The VAE's halves, checked and loaded for this call; released with the result, but for weights
  /// that are to be kept: so many bytes of them (0: none).
  std::unique_ptr<models::VaeDecoder> load_vae(int64_t keep = 0) const;
  std::unique_ptr<models::VaeEncoder> load_vae_encoder() const;
  /// The decoder of previews that was given (WeightFiles::preview_vae), or else the VAE's, checked
  /// and loaded for this call.
  std::unique_ptr<models::VaeDecoder> load_preview_vae() const;
  /// A text encoder of the folder over its weights, names checked; it reads them while it runs.
  std::unique_ptr<models::TextEncoder> load_text_encoder(
      const std::string& part, const std::shared_ptr<const nn::Weights>& weights) const;

 private:
  std::unique_ptr<nn::Denoiser> load_transformer(int rank, int64_t resident,
                                                 const Adapters* adapters) const;
  std::string checked(const std::string& part, const std::function<std::string()>& check) const;

  Remembered<std::string, std::string> said_;  // of files that were checked
  Remembered<nn::DType, nn::Geometry> geometry_;
};

/// Reads the folder and starts the device; as Model::open.
void open_model(const std::string& model, const RunOptions& options, ModelState& state,
                const WeightFiles& files = {});

/// An open model as it is rehearsed: weights and tensors are on meta, ranks are threads that count
/// as processes do. Experts get as many assignments as the caller's scope assumes.
void set_stage(const ModelState& state, const RunOptions& options, ModelState& stage);

/// The one store of packed weights of the process.
const load::WeightStore& weight_store();
/// Its models that keep weights between requests.
Residents& residents();

}  // namespace tessera::runtime
