#include <algorithm>

#include "base/fail.h"
#include "engine/conditioning.h"
#include "engine/model_state.h"
#include "engine/token_memory.h"

namespace tessera {
namespace {

Component describe(const load::Component& part) {
  Component shown{part.name, part.class_name, part.folder, 0, 0, {}};
  const bool weights = part.name != "scheduler" && part.name.find("tokenizer") == std::string::npos;
  if (!weights) return shown;
  const load::TensorSet tensors = load::open_component(part.folder);
  shown.file_bytes = tensors.bytes();
  for (const std::string& name : tensors.names()) {
    int64_t elements = 1;
    for (int64_t size : tensors.entry(name).sizes) elements *= size;
    shown.parameters += elements;
  }
  return shown;
}

void add_run(Inspection& found, const models::Recipe& recipe,
             const models::Recipe::Defaults& defaults, const RunOptions& options,
             const GenerateRequest& request, int64_t factor, const base::Json* vae) {
  require(request.count >= 1 && request.count <= 100000, ErrorCode::usage,
          "--count {}: expected a number from 1 to 100000", request.count);
  const nn::TokenLayout layout =
      recipe.layout(engine::latent_pixels(request.height, factor, "height"),
                    engine::latent_pixels(request.width, factor, "width"),
                    engine::latent_frames(recipe, request.frames));
  const float guidance = request.guidance.value_or(defaults.guidance);
  const bool branches = recipe.text_inputs().empty()
                            ? guidance != 1
                            : engine::branches_of(recipe, request, guidance).two;
  const int steps = request.steps.value_or(defaults.steps);
  require(steps >= 1, ErrorCode::usage, "--steps {}: expected 1 or more", steps);
  const parallel::Workload workload{request.count, layout.tokens(), branches ? 2 : 1, steps};
  found.plan = to_string(options.plan);
  if (!found.plan.empty()) found.ranks = engine::rank_memory(recipe, options, layout, workload);
  const auto need = engine::estimate(recipe, engine::dtype_of(options), layout, request.count,
                                     branches, vae, nullptr, engine::expert_dtype_of(options));
  found.width = layout.size[2] * factor;
  found.height = layout.size[1] * factor;
  found.rows = (branches ? 2 : 1) * request.count;
  found.flops_per_step = need.flops_per_step;
  found.memory = {
      {"weights", need.weights}, {"activations", need.activations}, {"peak", need.peak}};
}

// What a language model holds beside its sizes, and a run of one prompt.
void add_tokens(Inspection& found, const Model::State& state) {
  const engine::Language& language = *state.language;
  const models::TokenFacts& facts = language.recipe().facts();
  auto& shown = found.components.back().facts;
  for (const auto& [name, value] : language.recipe().sizes()) shown[name] = value;
  shown["tokenizer"] = language.has_tokenizer() ? fmt::format("{} tokens", language.tokens().size())
                                                : "none: prompts as ids only";
  shown["chat_template"] = language.has_template() ? "yes" : "none";
  if (language.has_tokenizer() || facts.mask) {
    const sample::SpecialIds special = language.special();
    shown["mask_token_id"] = std::to_string(special.mask);
    shown["eos_token_id"] = fmt::format("{}", fmt::join(special.ends, ", "));
  }
  found.answer_tokens = std::min(language.max_tokens(), facts.context / 2);
  found.prompt_tokens = std::min<int64_t>(128, facts.context - found.answer_tokens);
  found.block = facts.block;
  const engine::TokenNeed need = engine::token_need(
      state, {{found.prompt_tokens + found.answer_tokens}, facts.block, facts.block});
  found.flops_per_step = need.flops;
  found.plan = to_string(state.options.plan);
  found.rows = 1;
  found.memory = {{"weights", need.weights},
                  {"activations", need.activations},
                  {"kv", need.kv},
                  {"peak", need.peak}};
  found.unfit = engine::token_problem(state, need);
}

}  // namespace

Inspection Model::inspect(const GenerateRequest& request) const {
  const State& state = *state_;
  Inspection found;
  found.model = state.folder.path;
  found.device = engine::device_name(state.place);
  found.pipeline = state.folder.class_name;
  found.class_names = state.class_names;
  for (const load::Component& part : state.folder.components) {
    found.components.push_back(describe(part));
    if (part.name == "transformer")
      for (const auto& [name, value] : state.recipe->facts())
        found.components.back().facts[name] = value;
    if (part.name == "model" && state.language) add_tokens(found, state);
  }
  if (state.language) state.language->check(state.dtype());
  if (state.recipe) state.check_transformer();
  if (state.has_vae()) state.check_vae();
  if (state.recipe)
    add_run(found, *state.recipe, state.defaults, state.options, request, state.vae_factor(),
            state.has_vae() ? &state.folder.component("vae").config : nullptr);
  return found;
}

std::vector<std::string> known_model_sizes() {
  std::vector<std::string> names;
  for (const auto& [name, config] : models::named_sizes()) names.push_back(name);
  return names;
}

Inspection inspect_by_name(const std::string& name, const RunOptions& options,
                           const GenerateRequest& request) {
  for (const auto& [known, config] : models::named_sizes()) {
    if (known != name) continue;
    const auto recipe = models::make_recipe(config.at("model_type"), config, name);
    Inspection found;
    found.model = name;
    found.pipeline = "sizes by name, no files";
    Component part{"transformer", "dit_moe", "", 0, 0, {}};
    for (const auto& [fact, value] : recipe->facts()) part.facts[fact] = value;
    add_run(found, *recipe, recipe->defaults(), options, request, 8, nullptr);
    part.parameters =
        engine::estimate(*recipe, nn::DType::bf16, recipe->layout(0, 0), 1, false, nullptr)
            .parameters;
    found.components.push_back(part);
    return found;
  }
  fail(ErrorCode::model, "no size is called '{}'; known are {}", name,
       fmt::join(known_model_sizes(), ", "));
}

}  // namespace tessera
