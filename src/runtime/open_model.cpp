#include "runtime/open_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/is_there.h"
#include "base/json_memory.h"
#include "base/printable.h"
#include "load/few_steps.h"
#include "models/published_models.h"
#include "runtime/check_quantised.h"
#include "runtime/choose_stages.h"
#include "runtime/resolve_model.h"

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
