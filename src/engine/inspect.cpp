#include <algorithm>

#include "admission/expected_time.h"
#include "admission/token_memory.h"
#include "base/fail.h"
#include "base/stop.h"
#include "completion/options.h"
#include "diffusion/conditioning.h"
#include "diffusion/plan_job.h"
#include "engine/state.h"
#include "kernels/probe.h"
#include "load/quantisation.h"
#include "load/tiny_vae.h"
#include "load/weights_file.h"
#include "models/published_models.h"
#include "pipeline/check_request.h"
#include "runtime/choose_stages.h"
#include "runtime/count_parameters.h"
#include "runtime/open_model.h"
#include "tessera/prediction.h"
#include "tokenizer/folder.h"

namespace tessera {
namespace {

void add_note(Inspection& inspection, const std::string& note) {
  if (!note.empty()) inspection.notes.push_back(note);
}

// "28 in int8 and 12 in int4, int8 activations"
std::string products_of(const runtime::ModelState& state, const load::Component& part) {
  if (part.name != "vae" && !std::ranges::count(state.parts_with_products(), part.name)) return "";
  std::string text;
  for (const auto& [form, count] : state.products_of(part.name))
    text += fmt::format("{}{} in {}", text.empty() ? "" : " and ", count, form);
  return text.empty() ? "" : text + ", int8 activations";
}

// Number of tensors of a file by type: "F32 12, Q4_K 180".
std::string stored_as(const load::TensorSet& tensors) {
  std::map<std::string, int> counts;
  for (const std::string& name : tensors.names()) {
    const load::TensorEntry& entry = tensors.entry(name);
    ++counts[entry.format ? tensor::name_of(*entry.format) : entry.dtype];
  }
  std::string text;
  for (const auto& [type, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", type, count);
  return text;
}

Component describe(const runtime::ModelState& state, const load::Component& part) {
  Component component{part.name, part.class_name, part.weights(), 0, 0, true, {}};
  if (part.name == "scheduler") return component;
  if (part.name.starts_with("tokenizer")) {
    const auto tokenizer = tokenizer::open_tokenizer(part.folder);
    component.facts["vocabulary"] = std::to_string(tokenizer->vocabulary());
    if (tokenizer->longest() > 0)
      component.facts["model_max_length"] = std::to_string(tokenizer->longest());
    return component;
  }
  const bool used = part.name == "transformer" || part.name == "vae" || part.name == "model" ||
                    part.name == "critic" || part.name == load::kPreviewVae ||
                    part.name.starts_with("text_encoder");
  if (!used) {
    component.facts["use"] = "none: no run reads it";
    return component;
  }
  if (const std::string products = products_of(state, part); !products.empty())
    component.facts["products"] = products;
  if (!load::has_weights(part)) {
    component.downloaded = false;
    component.file_bytes = load::announced_bytes(part.folder);
    component.parameters = runtime::parameters_on_meta(state, part);
    return component;
  }
  const load::TensorSet tensors = load::open_weights(part);
  component.file_bytes = tensors.bytes();
  if (!part.file.empty()) component.facts["stored as"] = stored_as(tensors);
  if (part.quantised.experts)
    component.facts["experts"] =
        part.quantised.int4 ? "int4, with a scale for each 32" : "int8, with a scale a row";
  if (part.quantised.dense && !part.quantised.int8_rows)
    component.facts["dense"] = "int8, with a scale a row";
  for (const std::string& name : tensors.names()) {
    if (!load::holds_scales(tensors, name))
      component.parameters += load::elements_of(tensors, name);
  }
  return component;
}

// Adds the memory under the most uneven routing.
void add_uneven(Inspection& inspection, const Plan& plan, const nn::Geometry& geometry,
                const nn::SelectionRule* rule, const std::function<admission::DryRun()>& dry_run) {
  const int64_t most = admission::most_uneven(plan, geometry, rule, dry_run);
  if (most == 0) return;
  inspection.memory["uneven"] = most;
  add_note(inspection, admission::assumed_routing(most));
}

// Adds the run of a request, and under a plan or a budget also the memory of each rank.
void add_run(Inspection& inspection, const runtime::ModelState& state,
             const GenerateRequest& request, diffusion::Job& job) {
  const int64_t factor = state.vae_factor();
  inspection.plan = to_string(state.options.plan);
  if (!inspection.plan.empty() || state.options.memory_budget > 0) {
    admission::MemoryFit fit = admission::fit_memory(state, request, job);
    inspection.ranks = std::move(fit.denoise.ranks);
    inspection.memory["process"] = fit.process;
    if (state.options.memory_budget > 0) inspection.unfit = std::move(fit.problem);
    add_uneven(inspection, state.options.plan, state.geometry(), nullptr,
               [&] { return admission::dry_run(state, job); });
  }
  inspection.notes.insert(inspection.notes.end(), job.planned.notes.begin(),
                          job.planned.notes.end());
  inspection.width = job.planned.layout.size[2] * factor;
  inspection.height = job.planned.layout.size[1] * factor;
  inspection.sequences = (job.planned.guidance.branches() ? 2 : 1) * job.samples();
  for (const diffusion::Text& text : job.asked.texts)
    inspection.prompt_tokens = std::max(inspection.prompt_tokens, text.batch.length);
}

void add_need(Inspection& inspection, const runtime::ModelState& state,
              const admission::RunNeed& need) {
  inspection.flops_per_step = diffusion::flops_of(need.denoise.work);
  inspection.memory = {{"weights", std::max(need.denoise.weights, need.decode.weights)},
                       {"activations", std::max(need.denoise.activations, need.decode.activations)},
                       {"peak", need.peak}};
  if (need.text.peak > 0) inspection.memory["text"] = need.text.peak;
  if (inspection.device != "cpu") return;
  const tensor::BindScope bind(state.workers.scope());
  const admission::ExpectedTime time =
      admission::expected_time(need, admission::measure_rates(state.dtype()));
  inspection.seconds = {{"text", time.text},
                        {"load", time.load},
                        {"step", time.step},
                        {"decode", time.decode},
                        {"whole", time.whole()}};
  inspection.expected = time.sentence();
}

// Estimates seconds. A pass computes and reads weights, nearly all of them with so many tokens.
void add_seconds(Inspection& inspection, const runtime::ModelState& state,
                 const admission::DryRun& prediction) {
  if (inspection.device != "cpu") return;
  const tensor::BindScope bind(state.workers.scope());
  const admission::Rates rates = admission::measure_rates(state.dtype());
  const double read = kernels::probe_limits(int64_t{1} << 28).read;
  const double load = double(prediction.weights) / rates.packing;
  const double computing = admission::seconds_of(prediction.work, rates);
  const double pass = read > 0 ? std::max(computing, double(prediction.weights) / read) : computing;
  inspection.seconds = {{"load", load}, {"pass", pass}};
  const auto blocks = (inspection.answer_tokens + inspection.block - 1) / inspection.block;
  const bool edits = state.language->spec().decode.starts_with("edit");  // may change text, too
  const bool canvas = state.language->spec().canvas;
  inspection.expected =
      fmt::format("about {:.2g} s a pass over all of it, {} passes; loading {:.2g} s", pass,
                  edits    ? fmt::format("{} or more", 2 * blocks)
                  : canvas ? fmt::format("{} or more", blocks)
                           : fmt::format("{} to {}", blocks, inspection.answer_tokens),
                  load);
}

std::map<std::string, std::string> facts_of(const models::MoeLayerConfig& layer) {
  return {{"hidden_size", std::to_string(layer.hidden)},
          {"intermediate_size", std::to_string(layer.inner)},
          {"num_experts", std::to_string(layer.experts)}};
}

// Adds a language model's facts beyond sizes, and a run of a single prompt.
void add_tokens(Inspection& inspection, const runtime::ModelState& state) {
  completion::check_token_plan(state);
  const runtime::Language& language = *state.language;
  const models::TokenSpec& spec = language.spec();
  auto& facts = inspection.components.back().facts;
  for (const auto& [name, value] : spec.facts) facts[name] = value;
  facts["tokenizer"] = language.has_tokenizer() ? fmt::format("{} tokens", language.tokens().size())
                                                : "none: prompts as ids only";
  facts["chat_template"] = language.has_template() ? "yes" : "none";
  if (language.has_tokenizer() || spec.mask) {
    const sample::SpecialIds special = language.special();
    if (!spec.canvas) facts["mask_token_id"] = std::to_string(special.mask);
    facts["eos_token_id"] = fmt::format("{}", fmt::join(special.ends, ", "));
  }
  inspection.answer_tokens = std::min(language.max_tokens(), spec.context / 2);
  inspection.prompt_tokens = std::min<int64_t>(128, spec.context - inspection.answer_tokens);
  inspection.block = spec.block;
  inspection.draws = spec.canvas;
  completion::TokenRun run{
      {inspection.prompt_tokens + inspection.answer_tokens}, spec.block, spec.block};
  if (spec.canvas) {
    const int64_t canvases = (inspection.answer_tokens + spec.block - 1) / spec.block;
    run.lengths = {inspection.prompt_tokens + canvases * spec.block};
    run.prefill = {inspection.prompt_tokens};
    run.canvas = spec.vocabulary;
  }
  RunOptions single_rank = state.options;
  single_rank.plan = {};
  admission::DryRun prediction = admission::dry_run_tokens(state, single_rank, run);
  inspection.flops_per_step = diffusion::flops_of(prediction.work);
  add_seconds(inspection, state, prediction);
  if (spec.block_causal && !spec.canvas) {
    run.prefill = {inspection.prompt_tokens / spec.block * spec.block};
    prediction = admission::dry_run_tokens(state, single_rank, run);
  }
  inspection.sequences = 1;
  inspection.memory = {{"weights", prediction.weights},
                       {"activations", prediction.process - prediction.weights},
                       {"kv", prediction.ranks[0].kv},
                       {"peak", prediction.process}};
  inspection.plan = to_string(state.options.plan);
  admission::TokenFit fit = admission::fit_tokens(state, run);
  inspection.unfit = std::move(fit.problem);
  add_note(inspection, fit.note);
  if (!inspection.plan.empty() || state.options.memory_budget > 0) {
    inspection.ranks = std::move(fit.need.ranks);
    inspection.memory["process"] = fit.need.process;
    if (run.experts == 0)
      add_uneven(inspection, state.options.plan, language.geometry(state.dtype()), &run.rule,
                 [&] { return admission::dry_run_tokens(state, state.options, run); });
  }
}

Inspection inspection_of(const runtime::ModelState& state, const GenerateRequest& request) {
  pipeline::check_request(request);
  Inspection inspection;
  inspection.model = state.folder.path;
  inspection.device = runtime::device_name(state.place);
  inspection.pipeline = state.folder.class_name;
  inspection.class_names = state.class_names;
  const auto note = [&](const std::string& text) { add_note(inspection, text); };
  bool whole = true;  // a folder without weights cannot be checked
  for (const load::Component& part : state.folder.components) {
    base::check_stop();
    inspection.components.push_back(describe(state, part));
    const bool downloaded = inspection.components.back().downloaded;
    if (part.name == "transformer")
      for (const auto& [name, value] : state.spec->facts)
        inspection.components.back().facts[name] = value;
    if (part.name == "transformer" && downloaded) note(state.check_transformer());
    if (part.name == "vae" && downloaded) note(state.check_vae());
    if (part.name == "model" && state.language) add_tokens(inspection, state);
    if (part.name == "model" && state.layer)
      inspection.components.back().facts = facts_of(*state.layer);
    if (part.name == "model") whole = downloaded;
  }
  for (const auto& [name, type] : state.folder.absent)
    inspection.components.push_back({name, type, "", 0, 0, false, {}});
  if (state.language && whole) note(state.language->check(state.dtype()));
  if (!state.spec) return inspection;
  diffusion::Job job = diffusion::sketch_job(state, request);
  add_need(inspection, state, admission::run_need(state, job, request.decode));
  add_run(inspection, state, request, job);
  return inspection;
}

}  // namespace

Inspection Model::inspect(const GenerateRequest& request, const std::stop_token& stop) const {
  const base::BindStop stop_binding(stop);
  return inspection_of(state(), request);
}

std::vector<std::string> known_model_sizes() {
  std::vector<std::string> names;
  for (const models::PublishedModel& model : models::published_models())
    names.push_back(model.name);
  return names;
}

bool is_known_model_size(const std::string& name) {
  return models::published_model(name) != nullptr;
}

Inspection inspect_by_name(const std::string& name, const RunOptions& options,
                           const GenerateRequest& request, const std::stop_token& stop) {
  const base::BindStop stop_binding(stop);
  pipeline::check_request(options);
  runtime::ModelState state;
  runtime::open_published(name, options, state);
  Inspection inspection = inspection_of(state, request);
  inspection.pipeline = "sizes by name, no files";
  for (Component& part : inspection.components) {
    part.path.clear();
    part.downloaded = true;  // a published model has no files to download
  }
  return inspection;
}

}  // namespace tessera
