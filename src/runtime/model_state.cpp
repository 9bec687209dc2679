#include "runtime/model_state.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/printable.h"
#include "load/held_weights.h"
#include "load/meta_weights.h"
#include "load/quantisation.h"
#include "load/tiny_vae.h"
#include "load/weights_file.h"
#include "parallel/setup.h"
#include "runtime/loading_denoiser.h"
#include "runtime/sharded_denoiser.h"
#include "tensor/device_pool.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {
namespace {

// The quantised form of a folder's weights, if any.
load::Quantised stored(const load::ModelFolder& folder) {
  for (const char* part : {"transformer", "model"})
    if (folder.has(part)) return folder.component(part).quantised;
  return {};
}

// Checks the names of the VAE's half `make`; the file may also hold names of the other half.
template <class Make>
std::string check_half(const ModelState& state, const Make& make, const std::string& other,
                       const std::string& others_conv, const char* name = "vae") {
  const tensor::Uncounted aside;
  const load::Component& part = state.folder.component(name);
  const load::TensorSet tensors = load::open_weights(part);
  const load::MetaWeights meta_weights(tensors);
  (void)make(meta_weights, state.dtype());
  const std::string unused[] = {other, others_conv, "bn.*"};
  return load::check_names(meta_weights, tensors, part.weights(), unused);
}

}  // namespace

const load::WeightStore& weight_store() {
  static const load::WeightStore store;  // per process: weights only, no state of requests
  return store;
}

ModelPool& pool() {
  static ModelPool model_pool;  // per process, as memory is
  return model_pool;
}

nn::DType dtype_of(const RunOptions& options) {
  return options.precision == Precision::f32 ? nn::DType::f32 : nn::DType::bf16;
}

std::optional<nn::DType> expert_dtype_of(const RunOptions& options,
                                         const load::ModelFolder& folder) {
  const auto stored_dtype = stored(folder).experts;
  const bool quantises = rules_of(options).experts() != load::QuantiseRules::Bits::none;
  return stored_dtype || !quantises ? stored_dtype : nn::DType::i8;
}

load::QuantiseRules rules_of(const RunOptions& options) {
  using Bits = load::QuantiseRules::Bits;
  load::QuantiseRules rules;
  const Bits bits = options.precision == Precision::int8   ? Bits::int8
                    : options.precision == Precision::int4 ? Bits::int4
                                                           : Bits::none;
  if (bits != Bits::none) rules = load::QuantiseRules::all_in(bits);
  rules.add(options.quantise_rules, "`quantise_rules`");
  return rules;
}

load::QuantiseRules rules_with_blocks(const RunOptions& options, const std::string& given) {
  load::QuantiseRules rules;
  if (options.precision != Precision::f32 && options.device.kind == DeviceKind::cpu)
    rules.add("blocks=int8", "blocks");
  rules.add(given, "`quantise_rules`");
  return rules;
}

std::string asked_as(const RunOptions& options) {
  if (!options.quantise_rules.empty()) return "`quantise_rules` " + options.quantise_rules;
  return options.precision == Precision::int4 ? "`dtype` int4" : "`dtype` int8";
}

models::Source source_of(const load::Component& part, const std::string& pipeline) {
  return {part.config, part.description(), pipeline};
}

bool ModelState::int4_experts() const {
  return stored(folder).int4 || (quantises_experts() && spec &&
                                 rules_of(options).experts() == load::QuantiseRules::Bits::int4);
}

bool ModelState::quantises_experts() const { return expert_dtype() && !stored(folder).experts; }

bool ModelState::quantises_products() const {
  return spec && !stored(folder).int8_rows && rules_of(options).names_products();
}

std::vector<std::string> ModelState::parts_with_products() const {
  std::vector<std::string> parts;
  if (!spec) return parts;
  parts.push_back("transformer");
  for (const models::TextPart& part : spec->text_parts)
    if (folder.has(part.encoder) && std::ranges::find(parts, part.encoder) == parts.end())
      parts.push_back(part.encoder);
  return parts;
}

std::map<std::string, ops::WeightForm> ModelState::forms_of(
    const std::string& part, const std::shared_ptr<const load::MetaWeights>& weights,
    std::optional<nn::DType> experts) const {
  const tensor::Uncounted aside;
  if (part == "transformer") {
    nn::Portion whole = spec->whole();
    whole.expert_dtype = experts;
    (void)spec->make(*weights, whole, dtype());
  } else {
    const load::Component& component = folder.component(part);
    models::text_encoder_of(component.class_name, source_of(component), weights, dtype())
        ->encode({{0}, {1}, 1});
  }
  return weights->forms();
}

models::VaeSpec ModelDescription::vae() const {
  const load::Component& part = folder.component("vae");
  return models::vae_of(part.class_name, source_of(part));
}

// Checks the files of parts in memory as often as the files are read: once.
std::string ModelState::checked(const std::string& part,
                                const std::function<std::string()>& check) const {
  return options.keep_parts ? notes_.of(part, check) : check();
}

std::string ModelState::check_transformer() const {
  return checked("transformer", [&] {
    const tensor::Uncounted aside;
    const load::Component& part = folder.component("transformer");
    const load::TensorSet tensors = load::open_weights(part);
    const load::MetaWeights meta_weights(tensors);
    spec->make(meta_weights, spec->whole(), dtype());
    return load::check_names(meta_weights, tensors, part.weights());
  });
}

nn::Geometry ModelState::geometry() const {
  return geometry_.of(dtype(), [&] {
    const tensor::Uncounted aside;
    const load::MetaWeights weights;
    return spec->make(weights, spec->whole(), dtype())->geometry();
  });
}

nn::Portion ModelState::portion(int rank) const {
  nn::Portion portion = parallel::portion_of(options.plan, geometry(), rank);
  portion.expert_dtype = expert_dtype();
  return portion;
}

nn::Shard ModelState::shard_of(int rank) const {
  return {parallel::mesh_of(options.plan).coordinate(rank, "shard"), options.plan.shard};
}

std::shared_ptr<const nn::Denoiser> ModelState::transformer(int rank, int64_t resident,
                                                            const RunMeters* meters,
                                                            const Adapters* adapters) {
  tensor::Scope loading = tensor::current_scope();
  loading.pool = workers.pool.get();
  const tensor::BindScope bind(loading);
  const int portion = parallel::portion_number(options.plan, rank);
  const auto& memory = workers.scope(rank, meters).memory;
  const auto plain = [&] {
    return loaded.transformers.get(resident, portion, memory,
                                   [&] { return load_transformer(rank, resident, nullptr); });
  };
  if (!adapters || !adapters->change("transformer") || device() == tensor::Device::meta)
    return plain();
  // The plain network stays between requests, so the next adapters find its weights.
  std::shared_ptr<const nn::Denoiser> base;
  if (options.keep_parts && resident < 0 && options.plan.shard == 1 && !adapters->merge)
    base = with_all_blocks(plain());
  return adapters->transformers.get(resident, portion, memory,
                                    [&] { return load_transformer(rank, resident, adapters); });
}

std::unique_ptr<nn::Denoiser> ModelState::load_transformer(int rank, int64_t resident,
                                                           const Adapters* adapters) const {
  require(resident < 0 || !(quantises_experts() || quantises_products()), ErrorCode::usage,
          "{} does not go with blocks that are read again in each step; give more memory, or a "
          "quantised folder",
          asked_as(options));
  constexpr const char* kPart = "transformer";
  if (device() != tensor::Device::meta) (void)check_transformer();
  // Adapters find the weights of a whole transformer, and ranks wait for each other.
  if (device() == tensor::Device::cpu && resident < 0 && options.plan.ranks() == 1 && !adapters)
    return std::make_unique<LoadingDenoiser>(*spec, weights_of(kPart), *meta_weights_of(kPart),
                                             dtype(), portion(rank));
  return make_transformer(rank, resident, weights_of(kPart), adapters);
}

std::unique_ptr<nn::Denoiser> ModelState::make_transformer(
    int rank, int64_t resident, const std::shared_ptr<const nn::Weights>& plain,
    const Adapters* adapters) const {
  constexpr const char* kPart = "transformer";
  const auto merged = [&](std::shared_ptr<const nn::Weights> base_weights) {
    return adapters ? adapters->merged(kPart, std::move(base_weights), device()) : base_weights;
  };
  const auto weights = merged(plain);
  const auto pairs = adapters ? adapters->pairs(kPart, device()) : nullptr;
  const auto with_loras = nn::with_pairs(weights, pairs);
  if (resident >= 0)
    return std::make_unique<StreamedDenoiser>(*spec, with_loras, dtype(), resident, expert_dtype());
  const nn::Portion own_portion = portion(rank);
  if (options.plan.shard == 1) return spec->make(*with_loras, own_portion, dtype());
  auto meta = weights;
  if (device() != tensor::Device::meta) meta = merged(meta_weights_of(kPart));
  return std::make_unique<ShardedDenoiser>(*spec, meta, *weights, dtype(), own_portion,
                                           shard_of(rank), device(), pairs);
}

load::TensorSet ModelState::tensors_of(const std::string& part) const {
  load::TensorSet tensors;
  if (folder.has(part) && load::has_weights(folder.component(part)))
    tensors = load::open_weights(folder.component(part));
  if (part != "vae" && part != load::kPreviewVae)
    tensors.quantise(rules_with_blocks(options, rules_of(options).text()), load::products_of(part));
  return tensors;
}

std::shared_ptr<const load::MetaWeights> ModelState::meta_weights_of(
    const std::string& part) const {
  return std::make_shared<const load::MetaWeights>(tensors_of(part));
}

std::shared_ptr<const nn::Weights> ModelState::weights_of(const std::string& part) const {
  if (device() == tensor::Device::meta) return meta_weights_of(part);
  (void)load::open_weights(folder.component(part));  // throws if weights are missing
  load::TensorSet tensors = tensors_of(part);
  tensors.use_mapped(options.map_weights);
  auto weights = weight_store().open(tensors, device());
  if (!inputs || part != "transformer") return weights;
  return std::make_shared<nn::RecordingWeights>(std::move(weights), inputs);
}

std::shared_ptr<const nn::Weights> ModelState::vae_weights() const {
  auto weights = weights_of("vae");
  return rules_of(options).int8_filters() ? load::with_int8_filters(std::move(weights)) : weights;
}

int64_t ModelState::int8_filters() const {
  if (!folder.has("vae") || !rules_of(options).int8_filters()) return 0;
  const tensor::Uncounted aside;
  const load::MetaWeights names;
  (void)vae().decoder(names, dtype());
  return std::ranges::count_if(names.asked(), [](const auto& entry) {
    return load::is_int8_filter(entry.first, entry.second);
  });
}

std::string ModelState::check_vae() const {
  return checked("vae",
                 [&] { return check_half(*this, vae().decoder, "encoder.*", "quant_conv.*"); });
}

std::unique_ptr<models::VaeDecoder> ModelState::load_vae(int64_t keep) const {
  if (device() != tensor::Device::meta) (void)check_vae();
  if (keep == 0) return vae().decoder(*vae_weights(), dtype());
  const auto held_weights = std::make_shared<const load::HeldWeights>(vae_weights());
  auto decoder = vae().decoder(*held_weights, dtype());
  loaded.kept.keep("vae", held_weights->values(), keep);
  return decoder;
}

std::unique_ptr<models::VaeDecoder> ModelState::load_preview_vae() const {
  if (!folder.has(load::kPreviewVae)) return load_vae();
  const load::Component& part = folder.component(load::kPreviewVae);
  const models::VaeSpec tiny = models::vae_of(part.class_name, source_of(part));
  (void)check_half(*this, tiny.decoder, "encoder.*", "quant_conv.*", load::kPreviewVae);
  return tiny.decoder(*weights_of(load::kPreviewVae), dtype());
}

std::unique_ptr<models::VaeEncoder> ModelState::load_vae_encoder() const {
  (void)check_half(*this, vae().encoder, "decoder.*", "post_quant_conv.*");
  return vae().encoder(*vae_weights(), dtype());
}

std::string ModelState::check_text_encoder(const std::string& part) const {
  return checked(part, [&] {
    const tensor::Uncounted aside;
    const load::Component& component = folder.component(part);
    const load::TensorSet tensors = load::open_weights(component);
    const auto meta_weights = std::make_shared<load::MetaWeights>(tensors);
    const auto encoder =
        models::text_encoder_of(component.class_name, source_of(component), meta_weights, dtype());
    encoder->encode({{0}, {1}, 1});
    return load::check_names(*meta_weights, tensors, component.weights(), encoder->unused());
  });
}

std::unique_ptr<models::TextEncoder> ModelState::load_text_encoder(
    const std::string& part, const std::shared_ptr<const nn::Weights>& weights) const {
  if (device() != tensor::Device::meta) (void)check_text_encoder(part);
  const load::Component& component = folder.component(part);
  return models::text_encoder_of(component.class_name, source_of(component), weights, dtype());
}

std::map<std::string, int64_t> ModelState::products_of(const std::string& part) const {
  std::map<std::string, int64_t> counts;
  if (part == "vae") {
    if (const int64_t filters = int8_filters(); filters > 0) counts["int8"] = filters;
    return counts;
  }
  for (const auto& [matrix, form] : forms_of(part, meta_weights_of(part), expert_dtype()))
    if (form.int8_rows) ++counts[form.int4 ? "int4" : "int8"];
  return counts;
}

int64_t ModelState::kept_bytes() const {
  return loaded.transformers.bytes() + loaded.kept.bytes() +
         (language ? language->kept_bytes() : 0);
}

void ModelState::release_kept() {
  loaded.transformers.release();
  loaded.kept.release();
  if (language) language->release();
}

void copy_for_dry_run(const ModelState& state, const RunOptions& options, ModelState& stage) {
  stage.options = options;
  stage.options.processes = nullptr;
  stage.options.keep_parts = false;
  stage.place.device = tensor::Device::meta;
  static_cast<ModelDescription&>(stage) = state;
  stage.workers.assumptions = tensor::current_scope().assumptions;
  const auto world = static_cast<size_t>(options.plan.ranks());
  stage.workers.ranks.resize(world > 1 ? world : 0);
}

}  // namespace tessera::runtime
