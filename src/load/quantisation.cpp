#include "load/quantisation.h"

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/python_json.h"

namespace tessera::load {
namespace {

constexpr const char *kKey = "quantization_config", *kMethod = "quant_method", *kOurs = "tessera",
                     *kExperts = "experts", *kInt8 = "int8", *kBehind = "_scale";

}  // namespace

std::string scales_of(const std::string& matrix) { return matrix + kBehind; }

bool is_quantised(const TensorSet& tensors, const std::string& name) {
  return tensors.has(name) && tensors.entry(name).dtype == "I8" && tensors.has(scales_of(name));
}

bool holds_scales(const TensorSet& tensors, const std::string& name) {
  const size_t behind = std::string_view(kBehind).size();
  return name.ends_with(kBehind) && is_quantised(tensors, name.substr(0, name.size() - behind));
}

std::optional<tensor::DType> take_quantisation(base::Json& config, const std::string& file) {
  const auto found = config.find(kKey);
  if (found == config.end() || !found->is_object() || found->value(kMethod, base::Json()) != kOurs)
    return {};
  const base::Json experts = found->value(kExperts, base::Json());
  require(
      experts == kInt8, ErrorCode::model,
      "{}: '{}' says that experts are in {}; this build reads \"{}\": quantise the folder again",
      file, kKey,
      base::printable(experts.dump(-1, ' ', false, base::Json::error_handler_t::replace)), kInt8);
  config.erase(kKey);
  return tensor::DType::i8;
}

std::string quantised_config(const std::string& path) {
  using Ordered = nlohmann::ordered_json;
  std::string text = base::read_file(path, base::kLargestText);
  base::parse_json(text, path);  // what it refuses nobody else has to
  if (base::has_python_numbers(text)) text = base::without_python_numbers(text);
  Ordered config = Ordered::parse(text);
  config[kKey] = {{kMethod, kOurs}, {kExperts, kInt8}};
  return config.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace tessera::load
