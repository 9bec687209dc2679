#include "load/quantised_config.h"

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/python_json.h"

namespace tessera::load {
namespace {

constexpr const char *kKey = "quantization_config", *kMethod = "quant_method", *kOurs = "tessera",
                     *kExperts = "experts", *kDense = "dense", *kInt8 = "int8", *kInt4 = "int4",
                     *kOrder = "order", *kPanels = "panels", *kRows = "rows", *kRules = "rules";

}  // namespace

Quantised take_quantisation(base::Json& config, const std::string& file) {
  const auto it = config.find(kKey);
  if (it == config.end() || !it->is_object() || it->value(kMethod, base::Json()) != kOurs)
    return {};
  const auto dtype_of = [&](const char* key, bool int4_too) {
    const base::Json value = it->value(key, base::Json());
    require(
        value == kInt8 || (int4_too && value == kInt4), ErrorCode::model,
        "{}: '{}' says that '{}' is in {}; this build reads \"{}\"{}: quantise the folder again",
        file, kKey, key,
        base::printable(value.dump(-1, ' ', false, base::Json::error_handler_t::replace)), kInt8,
        int4_too ? " and \"int4\"" : "");
    return value;
  };
  Quantised result;
  const bool rows = it->contains(kRows);  // a pipeline: routed experts are optional
  if (!rows || it->contains(kExperts)) {
    result.experts = tensor::DType::i8;
    result.int4 = dtype_of(kExperts, true) == kInt4;
  }
  if (rows) {
    (void)dtype_of(kRows, false);
    const base::Json rules = it->value(kRules, base::Json());
    require(rules.is_string(), ErrorCode::model, "{}: '{}' has no '{}': quantise the folder again",
            file, kKey, kRules);
    result.rules = rules.get<std::string>();
    result.int8_rows = true;
    result.dense = tensor::DType::i8;
  }
  if (it->contains(kDense) && dtype_of(kDense, false) == kInt8) result.dense = tensor::DType::i8;
  require(it->value(kOrder, base::Json(kPanels)) == kPanels, ErrorCode::model,
          "{}: '{}' names an order of weights that this build does not read, other than \"{}\": "
          "quantise the folder again",
          file, kKey, kPanels);
  config.erase(kKey);
  return result;
}

std::string quantised_config(const Component& part, const QuantisedForm& form) {
  using Ordered = nlohmann::ordered_json;
  const std::string path = part.folder + "/config.json";
  std::string text =
      part.described ? base::read_file(path, base::kLargestText) : part.config.dump();
  base::parse_json(text, path);  // parse errors are reported here first
  if (base::has_python_numbers(text)) text = base::without_python_numbers(text);
  Ordered config = Ordered::parse(text);
  config.erase(kKey);  // a file may have replaced quantised weights
  if (form.experts || form.dense || !form.rules.empty()) config[kKey] = {{kMethod, kOurs}};
  if (form.experts) config[kKey][kExperts] = form.int4 ? kInt4 : kInt8;
  if (form.dense) config[kKey][kDense] = kInt8;
  if (!form.rules.empty()) {
    config[kKey][kRows] = kInt8;
    config[kKey][kRules] = form.rules;
  }
  if (form.panels) config[kKey][kOrder] = kPanels;
  return config.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace tessera::load
