#include "runtime/check_quantised.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "load/meta_weights.h"

namespace tessera::runtime {
namespace {

bool quantises(const RunOptions& options) {
  return options.precision == Precision::int8 || options.precision == Precision::int4 ||
         !options.quantise_rules.empty();
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
      !rules.names_products() && !rules.said("scores") && !rules.said("vae"))
    return check_blocks(state, rules);
  require(state.options.quantise_rules.empty(), ErrorCode::usage,
          "`quantise_rules` are for pipelines of images and videos; of '{}' leave them out",
          state.name);
  require(state.layer || !state.language->geometry(state.dtype()).experts.empty(), ErrorCode::usage,
          "`dtype` int8: '{}' has no routed experts, and nothing else is computed in int8; use "
          "bf16",
          state.name);
}

// Refuses the rule `vae` without residual blocks in the VAE, and on GPUs.
void check_filters(const ModelState& state) {
  require(!tensor::is_gpu(state.device()), ErrorCode::usage,
          "`quantise_rules` vae=int8: for CPUs; leave the rule out");
  require(state.int8_filters() > 0, ErrorCode::usage,
          "`quantise_rules` vae=int8: '{}' has no VAE with residual blocks; leave the rule out",
          state.name);
}

using Forms = std::map<std::string, ops::WeightForm>;

// The forms of all matrices in a run with these rules beside those of the files.
Forms forms_with(const ModelState& state, const std::string& rules) {
  Forms forms;
  for (const std::string& part : state.parts_with_products()) {
    load::TensorSet tensors = state.tensors_of(part);
    tensors.quantise(rules_with_blocks(state.options, rules), load::products_of(part));
    const auto weights = std::make_shared<const load::MetaWeights>(std::move(tensors));
    for (const auto& [name, form] : state.forms_of(part, weights, state.expert_dtype()))
      forms[fmt::format("{} {}", part, name)] = form;
  }
  return forms;
}

// Refuses rules that change no product, unless the folder has the forms that they ask for.
void check_effect(const ModelState& state, const load::QuantiseRules& rules) {
  using Bits = load::QuantiseRules::Bits;
  if (state.spec && rules.experts() != Bits::none && !state.geometry().experts.empty()) return;
  const Forms forms = forms_with(state, rules.text());
  const auto has = [&](bool int4) {
    return std::ranges::any_of(forms, [&](const auto& entry) {
      return entry.second.int8_rows && entry.second.int4 == int4;
    });
  };
  const bool given = rules.names(Bits::int4) ? has(true) : rules.names(Bits::int8) && has(false);
  if (given || (!rules.names(Bits::int4) && forms != forms_with(state, ""))) return;
  require(has(false) || has(true), ErrorCode::usage,
          "{}: '{}' has no products that are quantised; use bf16", asked_as(state.options),
          state.name);
  fail(ErrorCode::usage,
       "{}: the products of '{}' stay in the form that its files hold; leave it out, or quantise "
       "the original folder again",
       asked_as(state.options), state.name);
}

}  // namespace

void check_quantises(const ModelState& state) {
  if (!quantises(state.options)) return;
  if (state.language || state.layer) return check_experts_alone(state);
  const load::QuantiseRules rules = rules_of(state.options);
  const bool gpu = tensor::is_gpu(state.device());
  check_blocks(state, rules);
  require(!rules.int8_scores() || (state.spec && !gpu), ErrorCode::usage,
          "`quantise_rules` scores=int8: for transformers on CPUs; of '{}' leave it out",
          state.name);
  if (rules.int8_filters()) check_filters(state);
  if (!rules.names_products()) return;
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
  require(!gpu || !rules.names(load::QuantiseRules::Bits::int4), ErrorCode::usage,
          "{}: int4 is supported on CPUs only; leave `device` cuda out, or use int8",
          asked_as(state.options));
  check_effect(state, rules);
}

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

}  // namespace tessera::runtime
