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
#include "nn/input_records.h"
#include "runtime/adapters.h"
#include "runtime/device.h"
#include "runtime/language.h"
#include "runtime/memo.h"
#include "runtime/model_pool.h"
#include "runtime/network_cache.h"
#include "runtime/weight_cache.h"
#include "runtime/workers.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// The dtype of a run, and the dtype of routed experts' weights if different: as requested, or as
/// stored in the folder.
nn::DType dtype_of(const RunOptions& options);
std::optional<nn::DType> expert_dtype_of(const RunOptions& options,
                                         const load::ModelFolder& folder);
/// Rules that quantise weights at load; on a GPU only routed experts. Throws Error(usage).
load::QuantiseRules rules_of(const RunOptions& options);

/// The options of the caller when the model was opened.
struct ModelArguments {
  RunOptions options{};
  std::string name{};   ///< the caller's name of the model
  WeightFiles files{};  ///< in place of weights of the folder
};

/// The folder's description of a model. A dry run takes it whole.
struct ModelDescription {
  load::ModelFolder folder{};
  std::optional<models::PipelineSpec> spec{};     ///< none: a folder without a transformer
  models::PipelineSpec::Defaults defaults{};      ///< the family's defaults, or those of the folder
  std::optional<models::MoeLayerConfig> layer{};  ///< none: not a moe_layer
  std::vector<std::string> class_names{};         ///< empty: classes have numbers only

  bool has_vae() const { return folder.has("vae"); }
  /// The VAE of the configuration. Throws Error(model).
  models::VaeSpec vae() const;
  /// Whether the VAE is a video VAE.
  bool video() const { return has_vae() && vae().video; }
  /// Pixels per latent pixel of a side; 8 without a VAE.
  int64_t vae_factor() const { return has_vae() ? vae().factor : 8; }
};

/// Networks and weights in memory.
struct LoadedModel {
  NetworkCache<nn::Denoiser> transformers;  ///< by parallel::portion_number
  mutable WeightCache kept;  ///< kept by RunOptions::keep_parts, as far as memory allows
};

/// Runs that fitted into memory, and the memory between them.
struct AdmittedRuns {
  /// The last run of a language model that fit into memory: its tokens, tokens of its largest pass,
  /// and tokens decided by a pass; bytes of the process, and of weights.
  struct {
    std::mutex mutex;
    std::array<int64_t, 3> size{};
    std::array<int64_t, 2> bytes{};
  } expected;
  /// Memory of a run that makes images, in bytes: peak of the process, peak while texts are
  /// encoded, weights of the transformer and of the VAE; and whether the transformer fits beside
  /// the decoding.
  struct Fitting {
    int64_t process = 0, text = 0, transformer = 0, vae = 0;
    bool beside = false;
  };
  /// Runs that fit as a whole, by everything that determines their memory.
  Memo<std::string, Fitting> fitting;
  /// With RunOptions::keep_parts on a CPU: this model among the others of the process.
  std::optional<PooledModel> residence;
};

/// An open model, in parts by lifetime. Requests on many threads share the state; state of a
/// request is in its Job.
struct ModelState : ModelArguments, ModelDescription {
  /// Unique token of this open model; never reused, even after the model is closed.
  std::shared_ptr<const void> identity = std::make_shared<const char>();
  DeviceChoice place;                  ///< where parts compute; latents and images are the host's
  std::unique_ptr<Language> language;  ///< null: not a language model
  Workers workers;
  LoadedModel loaded;
  /// Inputs of the transformer's products in this model's runs; null: not recorded.
  std::shared_ptr<nn::InputRecords> inputs;
  AdmittedRuns admitted;

  nn::DType dtype() const { return dtype_of(options); }
  tensor::Device device() const { return place.device; }
  /// The ranks of the plan in this process.
  cluster::Ranks ranks() const { return cluster::Ranks::of(options, place.device); }
  std::optional<nn::DType> expert_dtype() const { return expert_dtype_of(options, folder); }
  /// Whether routed experts are in int4; products in int8 read int4 directly.
  bool int4_experts() const;
  /// Whether experts become int8 at every read, because the folder holds another form.
  bool quantises_experts() const;
  /// Whether other products are quantised at load.
  bool quantises_products() const;
  /// Throws Error(model) naming every tensor that is missing or differs in shape from the
  /// configuration. Reads no weights; checks files of parts in memory once. Returns a sentence
  /// naming unused tensors, or "".
  std::string check_transformer() const;
  std::string check_vae() const;
  std::string check_text_encoder(const std::string& part) const;
  /// The transformer's geometry for plans; reads no files, and builds the transformer on meta once.
  nn::Geometry geometry() const;
  /// The weights of a part; on meta in the form that the files have, or would have.
  std::shared_ptr<const nn::Weights> weights_of(const std::string& part) const;
  std::shared_ptr<const load::MetaWeights> meta_weights_of(const std::string& part) const;
  /// The weights of the VAE; rules may have the filters of residual blocks in int8.
  std::shared_ptr<const nn::Weights> vae_weights() const;
  /// The files of a part, with the rules for quantising at load.
  load::TensorSet tensors_of(const std::string& part) const;
  /// The forms of the matrices of the transformer or a text encoder. `experts`: dtype of routed
  /// experts, if not the model's.
  std::map<std::string, ops::WeightForm> forms_of(
      const std::string& part, const std::shared_ptr<const load::MetaWeights>& weights,
      std::optional<nn::DType> experts) const;
  /// The number of filters of the VAE's decoder in int8.
  int64_t int8_filters() const;
  /// The number of matrices (of the VAE: filters) for int8 activations, by "int8" and "int4".
  std::map<std::string, int64_t> products_of(const std::string& part) const;
  /// The transformer, and the text encoders of the pipeline that the folder has.
  std::vector<std::string> parts_with_products() const;
  /// A rank's portion of the transformer; with shard= also the rank's run of each block.
  nn::Portion portion(int rank) const;
  nn::Shard shard_of(int rank) const;
  /// A rank's transformer over these weights; with `resident` >= 0 only that many blocks stay in
  /// memory.
  std::unique_ptr<nn::Denoiser> make_transformer(int rank, int64_t resident,
                                                 const std::shared_ptr<const nn::Weights>& weights,
                                                 const Adapters* adapters = nullptr) const;
  /// A rank's transformer, checked and loaded on first use; with `resident` >= 0 only this many
  /// blocks stay in memory. While held, its bytes count in the scope and in the rank's meter.
  std::shared_ptr<const nn::Denoiser> transformer(int rank = 0, int64_t resident = -1,
                                                  const RunMeters* meters = nullptr,
                                                  const Adapters* adapters = nullptr);
  /// Bytes kept between requests, and their release.
  int64_t kept_bytes() const;
  void release_kept();
  /// The VAE's halves, checked and loaded for this call and released with the result; `keep` bytes
  /// of weights stay (0: none).
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

  Memo<std::string, std::string> notes_;  // sentences of checked files
  Memo<nn::DType, nn::Geometry> geometry_;
};

/// The option that asks for quantised weights, for messages.
std::string asked_as(const RunOptions& options);
/// The quantisation rules of a run in full: on CPUs products keep the block formats of a file,
/// unless the rules `given` say otherwise.
load::QuantiseRules rules_with_blocks(const RunOptions& options, const std::string& given);
/// Configuration and description of a component, for models.
models::Source source_of(const load::Component& part, const std::string& pipeline = "");

/// A copy of an open model for a dry run: weights and tensors are on meta, and ranks are threads
/// but count as processes. Experts get as many assignments as the caller's scope assumes.
void copy_for_dry_run(const ModelState& state, const RunOptions& options, ModelState& stage);

/// The process's store of packed weights.
const load::WeightStore& weight_store();
/// The process's models with weights kept between requests.
ModelPool& pool();

}  // namespace tessera::runtime
