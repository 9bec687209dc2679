#include "pipeline/model_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/printable.h"
#include "load/hub_cache.h"
#include "load/meta_weights.h"
#include "parallel/experts/exchange.h"
#include "pipeline/check_request.h"
#include "pipeline/streamed.h"

namespace tessera::pipeline {
namespace {

namespace fs = std::filesystem;

load::WeightStore& store() {
  static load::WeightStore one;  // one a process: weights only, no state of requests
  return one;
}

// Over those of the family: what the makers of a model advise in its generation_config.json.
models::Recipe::Defaults read_defaults(const std::string& folder,
                                       models::Recipe::Defaults defaults) {
  const std::string path = folder + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return defaults;
  const base::Json json = base::read_json(path);
  const base::ConfigReader read(json, path);
  defaults.steps = static_cast<int>(read.integer("num_inference_steps", defaults.steps, 1, 100000));
  defaults.guidance =
      static_cast<float>(read.number("guidance_scale", double{defaults.guidance}, 0, 1000));
  return defaults;
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const fs::path path = fs::path(folder) / "classes.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  const base::Json json = base::read_json(path.string());
  require(json.is_array(), ErrorCode::model, "{}: expected a list of names", path.string());
  std::vector<std::string> names;
  for (const auto& item : json) {
    require(item.is_string(), ErrorCode::model, "{}: entry {} is no name", path.string(),
            names.size());
    names.push_back(item.get<std::string>());
  }
  return names;
}

std::string known_transformers() {
  std::string names;
  for (const models::Family& family : models::families())
    names += (names.empty() ? "" : ", ") + std::string(family.type);
  return names;
}

int thread_count_of(const RunOptions& options) {
  if (options.threads > 0) return options.threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  // Cores that mpirun has not dealt out belong to all ranks of the machine.
  const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
  const int sharing = options.processes && !bound ? options.processes->on_this_machine : 1;
  return std::max(1, cores / sharing);
}

// "; shipped: shapes".
std::string known_models() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(TESSERA_MODELS_DIR, ignored))
    if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names.empty() ? "" : fmt::format("; shipped: {}", fmt::join(names, ", "));
}

// The configuration of one half of a VAE, by the half's class.
template <class Half>
auto vae_config(const load::Component& part) {
  const std::string where = part.folder + "/config.json";
  if constexpr (std::is_same_v<Half, models::CogVideoXVae> ||
                std::is_same_v<Half, models::CogVideoXVaeEncoder>)
    return models::parse_cogvideox_vae_config(part.config, where);
  else
    return models::parse_autoencoder_kl_config(part.config, where);
}

// `Half`: the decoder or the encoder of the VAE; the names of the other one may stand in the file.
template <class Half>
std::string check_part(const ModelState& state, const std::string& other,
                       const std::string& others_conv) {
  tensor::Scope aside;  // the rehearsal on meta counts for nobody
  const tensor::BindScope rehearsal(aside);
  const load::Component& part = state.folder.component("vae");
  const load::TensorSet tensors = load::open_weights(part);
  const load::MetaWeights asked(tensors);
  const Half named(vae_config<Half>(part), asked, state.dtype());
  const std::string unused[] = {other, others_conv};
  return load::check_names(asked, tensors, part.folder, unused);
}

template <class Half>
std::unique_ptr<Half> load_part(const ModelState& state) {
  const tensor::BindScope bind(state.scope());
  const load::Component& part = state.folder.component("vae");
  return std::make_unique<Half>(vae_config<Half>(part),
                                *store().open(load::open_weights(part), state.device()),
                                state.dtype());
}

}  // namespace

const load::WeightStore& weight_store() { return store(); }

std::string resolve_model(const std::string& model) {
  std::error_code ignored;
  if (model.empty() || fs::exists(model, ignored)) return model;
  if (load::is_repository_id(model)) {
    const std::string cache = load::hub_cache();
    const std::string snapshot = load::cached_snapshot(cache, model);
    require(
        !snapshot.empty(), ErrorCode::model,
        "the model folder '{}' does not exist here, nor is a repository of that name in the hub "
        "cache '{}': give a folder, or download it first with 'hf download {}'",
        model, cache, model);
    return snapshot;
  }
  if (model.find('/') != std::string::npos) return model;
  const char* chosen = std::getenv("TESSERA_MODELS");
  for (const std::string& root :
       {std::string(chosen ? chosen : ""), std::string(TESSERA_MODELS_DIR)}) {
    const fs::path path = fs::path(root) / model;
    if (!root.empty() && fs::is_directory(path, ignored)) return path.string();
  }
  fail(ErrorCode::model, "there is no model folder {} here, and no shipped model of that name{}",
       base::printable(model), known_models());
}

tensor::Scope ModelState::scope(int rank) const {
  tensor::Scope scope;
  const bool shared = rank < 0 || ranks.empty();
  const Rank* const own = shared ? nullptr : &ranks[static_cast<size_t>(rank)];
  scope.pool = own ? own->pool.get() : pool.get();
  scope.memory = own ? own->memory : memory;
  scope.meter = own ? own->meter : meter;
  return scope;
}

nn::DType ModelState::dtype() const { return dtype_of(options); }

std::optional<nn::DType> ModelState::expert_dtype() const { return expert_dtype_of(options); }

int64_t ModelState::vae_factor() const {
  if (!has_vae()) return 8;
  const load::Component& part = folder.component("vae");
  const size_t levels = video() ? vae_config<models::CogVideoXVae>(part).block_out_channels.size()
                                : vae_config<models::AutoencoderKL>(part).block_out_channels.size();
  return int64_t{1} << (levels - 1);
}

bool ModelState::video() const {
  return has_vae() && folder.component("vae").class_name == "AutoencoderKLCogVideoX";
}

std::string ModelState::check_transformer() const {
  tensor::Scope aside;  // the rehearsal on meta counts for nobody
  const tensor::BindScope rehearsal(aside);
  const load::Component& part = folder.component("transformer");
  const load::TensorSet tensors = load::open_weights(part);
  const load::MetaWeights asked(tensors);
  recipe->make(asked, {{0, recipe->blocks()}, true, true}, dtype());
  return load::check_names(asked, tensors, part.folder);
}

nn::Geometry ModelState::geometry() const {
  tensor::Scope aside;
  const tensor::BindScope rehearsal(aside);
  const load::MetaWeights weights;
  return recipe->make(weights, {{0, recipe->blocks()}, true, true}, dtype())->geometry();
}

nn::Denoiser& ModelState::transformer(int rank) {
  const int group = options.plan.expert, mine = rank % group;
  denoisers.resize(static_cast<size_t>(group));
  auto& denoiser = denoisers[static_cast<size_t>(mine)];
  if (denoiser) return *denoiser;
  (void)check_transformer();  // what is to be said of it was said before
  tensor::Scope loading = scope(mine);
  loading.pool = pool.get();
  const tensor::BindScope bind(loading);
  const load::TensorSet tensors = load::open_weights(folder.component("transformer"));
  nn::Portion portion{{0, recipe->blocks()}, true, true};
  portion.expert_dtype = expert_dtype();
  const auto sites = geometry().experts;
  if (group > 1 && !sites.empty())
    for (int owner : parallel::expert_owners(options.plan, sites.front().experts))
      portion.experts.push_back(owner == mine);
  require(resident_blocks < 0 || !portion.expert_dtype, ErrorCode::usage,
          "--dtype int8 does not go with blocks that are read again in each step; give more "
          "memory, or leave it out");
  if (resident_blocks >= 0)
    denoiser = std::make_unique<StreamedDenoiser>(*recipe, store().open(tensors, device()), dtype(),
                                                  resident_blocks);
  else
    denoiser = recipe->make(*store().open(tensors, device()), portion, dtype());
  return *denoiser;
}

std::string ModelState::check_vae() const {
  if (video()) return check_part<models::CogVideoXVae>(*this, "encoder.*", "quant_conv.*");
  return check_part<models::AutoencoderKL>(*this, "encoder.*", "quant_conv.*");
}

std::unique_ptr<models::AutoencoderKL> ModelState::load_vae() const {
  (void)check_vae();
  return load_part<models::AutoencoderKL>(*this);
}

std::unique_ptr<models::AutoencoderKLEncoder> ModelState::load_vae_encoder() const {
  (void)check_part<models::AutoencoderKLEncoder>(*this, "decoder.*", "post_quant_conv.*");
  return load_part<models::AutoencoderKLEncoder>(*this);
}

std::unique_ptr<models::CogVideoXVae> ModelState::load_video_vae() const {
  (void)check_vae();
  return load_part<models::CogVideoXVae>(*this);
}

std::unique_ptr<models::CogVideoXVaeEncoder> ModelState::load_video_vae_encoder() const {
  (void)check_part<models::CogVideoXVaeEncoder>(*this, "decoder.*", "post_quant_conv.*");
  return load_part<models::CogVideoXVaeEncoder>(*this);
}

std::unique_ptr<models::TextEncoder> ModelState::load_text_encoder(
    const std::string& part, const std::function<void(const std::string&)>& note) const {
  const load::Component& found = folder.component(part);
  const load::TensorSet tensors = load::open_weights(found);
  const auto make = [&](std::shared_ptr<const nn::Weights> weights) {
    return models::make_text_encoder(found.class_name, found.config, found.folder + "/config.json",
                                     std::move(weights), dtype());
  };
  {
    tensor::Scope aside;  // the rehearsal on meta counts for nobody
    const tensor::BindScope rehearsal(aside);
    const auto asked = std::make_shared<load::MetaWeights>(tensors);
    const auto encoder = make(asked);
    encoder->encode({{0}, {1}, 1});
    const std::string said = load::check_names(*asked, tensors, found.folder, encoder->unused());
    if (note && !said.empty()) note(said);
  }
  return make(store().open(tensors, device()));
}

Working::Working(ModelState& state) : state_(state) {
  require(!state.working.exchange(true), ErrorCode::usage,
          "'{}' works on a request already; do not ask it from a callback or another thread: open "
          "another Model",
          state.name);
}

void open_model(const std::string& model, const RunOptions& options, ModelState& state) {
  const auto found =
      problems(options.plan, options.processes ? options.processes->ranks : options.plan.world());
  require(found.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(found, "; "));
  state.options = options;
  state.place = parse_device(options.device);
  if (options.processes)
    start_device(state.place, *options.processes);
  else
    start_device(state.place);
  state.name = model;
  state.folder = load::open_folder(resolve_model(model));
  if (state.folder.has("model") && state.folder.kind == load::FolderKind::single)
    state.language = std::make_unique<Language>(state.folder.component("model"));
  if (state.language) state.language->compute_on(state.device());
  if (!state.has_vae() && state.folder.absent.contains("transformer"))
    state.folder.component("transformer");
  require(state.folder.has("transformer") || state.has_vae() || state.language, ErrorCode::model,
          "'{}' is a folder of type '{}', which is not supported; supported are pipelines with a "
          "transformer ({}), and AutoencoderKL",
          model, state.folder.class_name, known_transformers());
  if (state.folder.has("transformer")) {
    const load::Component& part = state.folder.component("transformer");
    state.recipe = models::make_recipe(part.class_name, part.config, part.folder + "/config.json");
    state.defaults = read_defaults(state.folder.path, state.recipe->defaults());
    state.class_names = read_class_names(state.folder.path);
    require(state.class_names.empty() ||
                static_cast<int64_t>(state.class_names.size()) == state.recipe->classes(),
            ErrorCode::model, "'{}' names {} classes in classes.json, its transformer has {}",
            model, state.class_names.size(), state.recipe->classes());
  }
  const int threads = thread_count_of(options);
  const int ranks = options.processes ? 1 : options.plan.world();
  state.pool = std::make_unique<base::ThreadPool>(threads);
  for (int r = 0; r < ranks && ranks > 1; ++r)
    state.ranks.push_back({std::make_unique<base::ThreadPool>(std::max(1, threads / ranks)),
                           std::make_shared<tensor::MemoryTracker>(state.memory),
                           std::make_shared<tensor::Meter>(state.meter)});
}

}  // namespace tessera::pipeline
