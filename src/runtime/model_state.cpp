#include "runtime/model_state.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/is_there.h"
#include "base/json_memory.h"
#include "base/printable.h"
#include "load/few_steps.h"
#include "load/held_weights.h"
#include "load/meta_weights.h"
#include "load/tiny_vae.h"
#include "load/weights_file.h"
#include "models/published_models.h"
#include "parallel/setup.h"
#include "runtime/choose_stages.h"
#include "runtime/loading_denoiser.h"
#include "runtime/published.h"
#include "runtime/resolve_model.h"
#include "runtime/sharded_denoiser.h"
#include "tensor/device_pool.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {
namespace {

// The published names of a model: folder, repository in the hub's cache, `_name_or_path`.
std::vector<std::string> names_of(const load::ModelFolder& folder) {
  std::vector<std::string> names;
  for (const auto& part : std::filesystem::path(folder.path).lexically_normal())
    if (part.string().starts_with("models--")) names.push_back(part.string());
  names.push_back(std::filesystem::path(folder.path + "/").parent_path().filename().string());
  const base::Json& config = folder.component("transformer").config;
  if (const auto it = config.find("_name_or_path"); it != config.end() && it->is_string())
    names.push_back(it->get<std::string>());
  return names;
}

// Returns the defaults of a distilled model, as the published name tells them.
models::PipelineSpec::Defaults distilled_defaults(const load::ModelFolder& folder,
                                                  const models::PipelineSpec& spec) {
  models::PipelineSpec::Defaults defaults = spec.defaults;
  for (const std::string& name : names_of(folder)) {
    if (const auto few = load::few_steps_of(name)) {
      defaults.steps = few->steps;
      if (!few->guided && !spec.embeds_guidance) defaults.guidance = spec.no_guidance;
      return defaults;
    }
    if (spec.turbo && load::says_turbo(name)) return *spec.turbo;
  }
  return defaults;
}

// The defaults of the family, then of distilled and consistency models, then the values of the
// model's generation_config.json, which also sets the text lengths in `spec`.
models::PipelineSpec::Defaults read_defaults(const load::ModelFolder& folder,
                                             models::PipelineSpec& spec) {
  const std::string path = folder.path + "/generation_config.json";
  models::PipelineSpec::Defaults defaults =
      spec.takes_text() ? distilled_defaults(folder, spec) : spec.defaults;
  if (folder.has("scheduler") && folder.component("scheduler").class_name == "LCMScheduler")
    defaults = {4, 1};
  if (!base::is_there(path)) return defaults;
  const base::Json json = base::read_json(path);
  const base::ConfigReader read(json, path);
  defaults.steps = static_cast<int>(read.integer("num_inference_steps", defaults.steps, 1, 100000));
  defaults.guidance =
      static_cast<float>(read.number("guidance_scale", double{defaults.guidance}, 0, 1000));
  for (models::TextPart& part : spec.text_parts)
    if (part.adjustable)
      part.tokens = read.integer("max_sequence_length", part.tokens, 1, models::kMostTextTokens);
  return defaults;
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const std::string path = folder + "/classes.json";
  if (!base::is_there(path)) return {};
  const base::Json json = base::read_json(path);
  require(json.is_array(), ErrorCode::model, "{}: expected a list of names", path);
  std::vector<std::string> names;
  for (const auto& item : json) {
    require(item.is_string(), ErrorCode::model, "{}: entry {} is no name", path, names.size());
    names.push_back(item.get<std::string>());
  }
  return names;
}

// The quantised form of a folder's weights, if any.
load::Quantised stored(const load::ModelFolder& folder) {
  for (const char* part : {"transformer", "model"})
    if (folder.has(part)) return folder.component(part).quantised;
  return {};
}

models::Source source_of(const load::Component& part, const std::string& pipeline = "") {
  return {part.config, part.description(), pipeline};
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

bool quantises(const RunOptions& options) {
  return options.precision == Precision::int8 || options.precision == Precision::int4 ||
         !options.quantise_rules.empty();
}

// On CPUs products keep the block formats of a file, unless rules say otherwise.
load::QuantiseRules rules_with_blocks(const RunOptions& options, const std::string& given) {
  load::QuantiseRules rules;
  if (options.precision != Precision::f32 && options.device.kind == DeviceKind::cpu)
    rules.add("blocks=int8", "blocks");
  rules.add(given, "`quantise_rules`");
  return rules;
}

bool holds_blocks(const ModelState& state) {
  std::vector<std::string> parts = state.parts_with_products();
  if (state.language) parts.emplace_back("model");
  return std::ranges::any_of(parts, [&](const std::string& part) {
    const load::TensorSet tensors = state.tensors_of(part);
    return std::ranges::any_of(tensors.files(), [](const load::TensorFile& file) {
      return std::ranges::any_of(file.entries(), [](const auto& entry) {
        return entry.second.format && *entry.second.format > tensor::BlockFormat::int8;
      });
    });
  });
}

std::string asked_as(const RunOptions& options) {
  if (!options.quantise_rules.empty()) return "`quantise_rules` " + options.quantise_rules;
  return options.precision == Precision::int4 ? "`dtype` int4" : "`dtype` int8";
}

// Refuses a rule for block formats without a file that has any.
void check_blocks(const ModelState& state, const load::QuantiseRules& rules) {
  require(
      !rules.said("blocks") || holds_blocks(state), ErrorCode::usage,
      "`exact_quants` or `quantise_rules` blocks: '{}' has no GGUF file in blocks; leave it out",
      state.name);
}

// Language models and single layers have routed experts in int8 only; files stay in their bits.
void check_experts_alone(const ModelState& state) {
  require(state.options.precision != Precision::int4, ErrorCode::usage,
          "`dtype` int4: experts become int4 once, when a folder is quantised with `experts` int4; "
          "that folder runs as it is");
  const load::QuantiseRules rules = rules_of(state.options);
  if (state.options.precision != Precision::int8 && state.language && rules.said("blocks") &&
      !rules.names_products() && !rules.said("scores"))
    return check_blocks(state, rules);
  require(state.options.quantise_rules.empty(), ErrorCode::usage,
          "`quantise_rules` are for pipelines of images and videos; of '{}' leave them out",
          state.name);
  require(state.layer || !state.language->geometry(state.dtype()).experts.empty(), ErrorCode::usage,
          "`dtype` int8: '{}' has no routed experts, and nothing else is computed in int8; use "
          "bf16",
          state.name);
}

// Refuses options and rules without effect.
void check_quantises(const ModelState& state) {
  if (!quantises(state.options)) return;
  if (state.language || state.layer) return check_experts_alone(state);
  const load::QuantiseRules rules = rules_of(state.options);
  const bool gpu = tensor::is_gpu(state.device());
  check_blocks(state, rules);
  require(!rules.int8_scores() || (state.spec && !gpu), ErrorCode::usage,
          "`quantise_rules` scores=int8: for transformers on CPUs; of '{}' leave it out",
          state.name);
  if (!rules.names_products()) return;
  bool any = state.spec && rules.experts() != load::QuantiseRules::Bits::none &&
             !state.geometry().experts.empty();
  std::map<std::string, ops::WeightForm> forms;
  for (const std::string& part : state.parts_with_products()) {
    load::TensorSet none;  // no files: names are those of the model
    none.quantise(rules, load::products_of(part));
    const auto meta_weights = std::make_shared<const load::MetaWeights>(none);
    forms.merge(state.forms_of(part, meta_weights, state.expert_dtype()));
  }
  for (const load::QuantiseRules::Rule& rule : rules.rules()) {
    const bool name = rule.of.find('*') != std::string::npos || rule.of.ends_with(".weight");
    require(!name || std::ranges::any_of(forms,
                                         [&](const auto& entry) {
                                           return entry.second.dtype != nn::DType::f32 &&
                                                  load::matches_rule(entry.first, rule.of);
                                         }),
            ErrorCode::usage, "`quantise_rules`: {} names no product of '{}' in bf16",
            base::printable(rule.of), state.name);
  }
  any = any || std::ranges::any_of(forms, [](const auto& entry) { return entry.second.int8_rows; });
  require(!gpu || !rules.names(load::QuantiseRules::Bits::int4), ErrorCode::usage,
          "{}: int4 is supported on CPUs only; leave `device` cuda out, or use int8",
          asked_as(state.options));
  require(any, ErrorCode::usage, "{}: '{}' has no products that are quantised; use bf16",
          asked_as(state.options), state.name);
}

// Refuses quantised folders that have no kernels on a GPU.
void check_device_forms(const ModelState& state) {
  require(
      !state.int4_experts() || !tensor::is_gpu(state.device()), ErrorCode::usage,
      "'{}' holds its experts in int4, which runs on CPUs; leave `device` cuda out, or quantise "
      "the model to int8",
      state.name);
  for (const auto& part : state.folder.components) {
    load::QuantiseRules rules;
    rules.add(part.quantised.rules, part.name);
    require(!rules.names(load::QuantiseRules::Bits::int4) || !tensor::is_gpu(state.device()),
            ErrorCode::usage,
            "'{}' holds products in int4, which run on CPUs; leave `device` cuda out, or quantise "
            "the model to int8",
            state.name);
  }
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

std::string ModelState::check_vae() const {
  return checked("vae",
                 [&] { return check_half(*this, vae().decoder, "encoder.*", "quant_conv.*"); });
}

std::unique_ptr<models::VaeDecoder> ModelState::load_vae(int64_t keep) const {
  if (device() != tensor::Device::meta) (void)check_vae();
  if (keep == 0) return vae().decoder(*weights_of("vae"), dtype());
  const auto held_weights = std::make_shared<const load::HeldWeights>(weights_of("vae"));
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
  return vae().encoder(*weights_of("vae"), dtype());
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

namespace {

// A folder's description of the model.
load::ModelFolder folder_of(const models::PublishedModel& model) {
  load::ModelFolder folder;
  folder.path = model.name;
  folder.class_name = model.description.at("class").get<std::string>();
  for (const auto& [name, part] : model.description.at("parts").items())
    folder.components.push_back({name,
                                 "",
                                 part.at("class").get<std::string>(),
                                 model.name + "/" + name,
                                 part.at("config"),
                                 {}});
  const bool single = folder.components.size() == 1;
  folder.kind = single ? load::FolderKind::single : load::FolderKind::pipeline;
  folder.options = model.description.value("options", base::Json::object());
  return folder;
}

void open_parts(const std::string& model, load::ModelFolder folder, const RunOptions& options,
                ModelState& state) {
  state.name = model;
  state.folder = std::move(folder);
  if (state.folder.has("model") && state.folder.kind == load::FolderKind::single) {
    const load::Component& part = state.folder.component("model");
    if (part.class_name == models::kMoeLayerType)
      state.layer = models::moe_layer_of(source_of(part));
    else
      state.language = std::make_unique<Language>(part);
  }
  check_device_forms(state);
  if (state.language) {
    state.language->compute_on(state.device());
    state.language->use_mapped(options.map_weights);
    state.language->use_rules(rules_with_blocks(options, options.quantise_rules));
  }
  if (!state.has_vae() && state.folder.absent.contains("transformer"))
    state.folder.component("transformer");
  require(state.folder.has("transformer") || state.has_vae() || state.language || state.layer,
          ErrorCode::model,
          "'{}' is a folder of type '{}', which is not supported; supported are pipelines with a "
          "transformer ({}), VAEs ({}) and language models ({})",
          model, state.folder.class_name, models::known_types(models::pipelines()),
          models::known_types(models::vaes()), models::known_types(models::language_models()));
  if (state.folder.has("transformer")) {
    const load::Component& part = state.folder.component("transformer");
    models::Source source = source_of(part, state.folder.class_name);
    const auto distilled = state.folder.options.find("is_distilled");
    source.distilled = distilled != state.folder.options.end() && *distilled == true;
    state.spec = models::pipeline_of(part.class_name, source);
    state.defaults = read_defaults(state.folder, *state.spec);
    state.class_names = read_class_names(state.folder.path);
    require(state.class_names.empty() ||
                static_cast<int64_t>(state.class_names.size()) == state.spec->classes,
            ErrorCode::model, "'{}' names {} classes in classes.json, its transformer has {}",
            model, state.class_names.size(), state.spec->classes);
  }
  check_quantises(state);
  check_launches(state);
  choose_stages(state);
  state.workers.start(options);
  if (options.keep_parts && state.device() == tensor::Device::cpu)
    state.admitted.residence.emplace(
        pool(), PooledModel::Keeps{model, [&state] { return state.kept_bytes(); },
                                   [&state] { state.release_kept(); }});
}

}  // namespace

void open_model(const std::string& model, const RunOptions& options, ModelState& state,
                const WeightFiles& files) {
  const base::BindJsonMemory within(options.memory_budget);
  const auto errors = problems(options.plan, cluster::started_ranks(options));
  require(errors.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(errors, "; "));
  state.options = options;
  state.place = choose_device(options.device);
  check_weights(options.plan, state.place);
  start_device(state.place, options);
  state.files = files;
  load::ModelFolder folder = load::open_folder(resolve_model(model), files);
  load::take_files(files, folder);
  open_parts(model, std::move(folder), options, state);
}

void open_published(const std::string& name, const RunOptions& options, ModelState& state) {
  const models::PublishedModel* const model = models::published_model(name);
  if (model == nullptr) {
    std::vector<std::string> names;
    for (const auto& published : models::published_models()) names.push_back(published.name);
    fail(ErrorCode::model, "no size is called {}; known are {}", base::printable(name),
         fmt::join(names, ", "));
  }
  const auto errors = problems(options.plan, options.plan.ranks());
  require(errors.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(errors, "; "));
  state.options = options;
  state.options.keep_parts = false;
  open_parts(model->name, folder_of(*model), state.options, state);
}

}  // namespace tessera::runtime
