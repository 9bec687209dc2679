#include "load/quantisation.h"

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/python_json.h"

namespace tessera::load {
namespace {

constexpr const char *kKey = "quantization_config", *kMethod = "quant_method", *kOurs = "tessera",
                     *kExperts = "experts", *kDense = "dense", *kInt8 = "int8", *kBehind = "_scale";

}  // namespace

std::string scales_of(const std::string& matrix) { return matrix + kBehind; }

bool is_quantised(const TensorSet& tensors, const std::string& name) {
  return tensors.has(name) && tensors.entry(name).dtype == "I8" && tensors.has(scales_of(name));
}

tensor::DType packed_as(const TensorSet& tensors, const std::string& name, tensor::DType compute) {
  return tensors.dense_in_int8() && is_quantised(tensors, name) ? tensor::DType::i8 : compute;
}

bool holds_scales(const TensorSet& tensors, const std::string& name) {
  const size_t behind = std::string_view(kBehind).size();
  return name.ends_with(kBehind) && is_quantised(tensors, name.substr(0, name.size() - behind));
}

Quantised take_quantisation(base::Json& config, const std::string& file) {
  const auto found = config.find(kKey);
  if (found == config.end() || !found->is_object() || found->value(kMethod, base::Json()) != kOurs)
    return {};
  const auto in_int8 = [&](const char* what) {
    const base::Json said = found->value(what, base::Json());
    require(said == kInt8, ErrorCode::model,
            "{}: '{}' says that '{}' is in {}; this build reads \"{}\": quantise the folder again",
            file, kKey, what,
            base::printable(said.dump(-1, ' ', false, base::Json::error_handler_t::replace)),
            kInt8);
    return tensor::DType::i8;
  };
  Quantised read{in_int8(kExperts), {}};
  if (found->contains(kDense)) read.dense = in_int8(kDense);
  config.erase(kKey);
  return read;
}

std::string quantised_config(const std::string& path, bool dense) {
  using Ordered = nlohmann::ordered_json;
  std::string text = base::read_file(path, base::kLargestText);
  base::parse_json(text, path);  // what it refuses nobody else has to
  if (base::has_python_numbers(text)) text = base::without_python_numbers(text);
  Ordered config = Ordered::parse(text);
  config[kKey] = {{kMethod, kOurs}, {kExperts, kInt8}};
  if (dense) config[kKey][kDense] = kInt8;
  return config.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace tessera::load
