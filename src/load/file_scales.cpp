#include "load/file_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

using base::Json;
using tensor::BlockFormat;

constexpr const char* kInstead = "download the file of the same model in bf16, f16, fp8 or as GGUF";
constexpr std::string_view kWeight = ".weight";
constexpr int64_t kLongestMark = 1 << 16;

std::optional<BlockFormat> eight_bits(const std::string& dtype) {
  if (dtype == "F8_E4M3") return BlockFormat::fp8_e4m3;
  if (dtype == "F8_E5M2") return BlockFormat::fp8_e5m2;
  if (dtype == "I8") return BlockFormat::int8;
  return std::nullopt;
}

// A layer's quantisation format according to the file.
struct Mark {
  std::string format;  // "" if not stated
  std::string by;      // tensor or key with the statement
};

class Scales {
 public:
  explicit Scales(const TensorFile& file) : file_(file), tensors_(file.entries()) {
    scaled_ = file.has("scaled_fp8");
    if (const auto it = file.metadata().find("_quantization_metadata"); it != file.metadata().end())
      layers_ = base::parse_json(it->second, file.path() + ": _quantization_metadata");
  }

  TensorFile apply() {
    for (const auto& [name, entry] : file_.entries()) {
      base::check_stop();
      if (!eight_bits(entry.dtype) && !is_marked(name)) continue;
      if (name.ends_with(kWeight) && !entry.sizes.empty())
        weight(name.substr(0, name.size() - kWeight.size()), entry);
      else if (eight_bits(entry.dtype) && name != "scaled_fp8")
        alone(name, entry);
    }
    tensors_.erase("scaled_fp8");
    for (const auto& [name, entry] : tensors_) refuse_stray(name);
    return file_.with(std::move(tensors_));
  }

 private:
  bool is_marked(const std::string& name) const {
    return name.ends_with(kWeight) &&
           file_.has(name.substr(0, name.size() - kWeight.size()) + ".comfy_quant");
  }

  // Float8 without a scale holds the values directly.
  void alone(const std::string& name, const TensorEntry& entry) {
    if (entry.dtype == "I8") return;
    TensorEntry& out = tensors_[name];
    out.format = eight_bits(entry.dtype);
    out.dtype = "BF16";
  }

  void weight(const std::string& layer, const TensorEntry& entry) {
    const std::string name = layer + std::string(kWeight);
    const Mark mark = mark_of(layer);
    check_format(name, entry, mark);
    const std::string scale = scale_of(layer);
    const bool needs = scaled_ || !mark.format.empty() || entry.dtype == "I8";
    require(!needs || !scale.empty(), ErrorCode::model,
            "{}: tensor {} ({}) has no scale beside it ({}.scale_weight or .weight_scale), and {}; "
            "{}",
            file_.path(), base::printable(name), entry.dtype, layer,
            scaled_ ? "the file says that it is scaled" : "its format needs one", kInstead);
    if (scale.empty()) return alone(name, entry);
    TensorEntry& out = tensors_[name];
    out.format = eight_bits(entry.dtype);
    out.dtype = "F32";
    out.scales = factors(scale, entry);
    tensors_.erase(scale);
    tensors_.erase(layer + ".comfy_quant");
    // Scales of float8 activations: no kernel here computes with them.
    for (const char* input : {".scale_input", ".input_scale"}) tensors_.erase(layer + input);
  }

  Mark mark_of(const std::string& layer) const {
    const std::string name = layer + ".comfy_quant";
    if (file_.has(name)) {
      const TensorEntry& entry = file_.entry(name);
      require(entry.dtype == "U8" && !entry.format && entry.stored_bytes() <= kLongestMark,
              ErrorCode::model, "{}: tensor {} ({}, {} bytes) is no short text; {}", file_.path(),
              base::printable(name), entry.dtype, entry.stored_bytes(), kInstead);
      std::string text(static_cast<size_t>(entry.stored_bytes()), '\0');
      file_.read_stored(name, reinterpret_cast<std::byte*>(text.data()));
      return mark_in(base::parse_json(text, file_.path() + ": " + name), name);
    }
    if (!layers_.is_object() || !layers_.contains("layers")) return {};
    const Json& layers = layers_.at("layers");
    require(layers.is_object(), ErrorCode::model,
            "{}: 'layers' in _quantization_metadata is no object; {}", file_.path(), kInstead);
    for (const char* before : {"", "model.diffusion_model.", "diffusion_model."})
      if (const auto it = layers.find(before + layer); it != layers.end())
        return mark_in(*it, "_quantization_metadata of " + layer);
    return {};
  }

  Mark mark_in(const Json& json, const std::string& by) const {
    require(json.is_object() && json.contains("format") && json.at("format").is_string(),
            ErrorCode::model, "{}: {} names no 'format'; {}", file_.path(), base::printable(by),
            kInstead);
    for (const auto& [key, value] : json.items()) {
      const bool rotated = key == "convrot" && value != Json(false);
      require(!rotated, ErrorCode::model,
              "{}: {} says that the weights are rotated ('convrot'), which is not read; {}",
              file_.path(), base::printable(by), kInstead);
      const bool known = key == "format" || key == "convrot" || key == "convrot_groupsize" ||
                         key == "full_precision_matrix_mult";
      require(known, ErrorCode::model, "{}: {} says {}, which is not known; {}", file_.path(),
              base::printable(by), base::printable(key), kInstead);
    }
    return {json.at("format").get<std::string>(), by};
  }

  void check_format(const std::string& name, const TensorEntry& entry, const Mark& mark) const {
    if (mark.format.empty()) {
      require(entry.dtype != "I8", ErrorCode::model,
              "{}: tensor {} is int8, and no 'comfy_quant' beside it says how; {}", file_.path(),
              base::printable(name), kInstead);
      return;
    }
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kFormats = {
        {{"float8_e4m3fn", "F8_E4M3"}, {"float8_e5m2", "F8_E5M2"}, {"int8_tensorwise", "I8"}}};
    const auto it = std::ranges::find(kFormats, mark.format,
                                      [](const auto& f) { return std::string(f.first); });
    require(it != kFormats.end(), ErrorCode::model,
            "{}: {} says that tensor {} is quantised as {}, which is not read (float8_e4m3fn, "
            "float8_e5m2 and int8_tensorwise are); {}",
            file_.path(), base::printable(mark.by), base::printable(name),
            base::printable(mark.format), kInstead);
    require(entry.dtype == it->second, ErrorCode::model,
            "{}: {} says that tensor {} is {}, and it is {}; {}", file_.path(),
            base::printable(mark.by), base::printable(name), mark.format, entry.dtype, kInstead);
  }

  // The tensor with the scale of a layer; "": none.
  std::string scale_of(const std::string& layer) const {
    const std::string older = layer + ".scale_weight", newer = layer + ".weight_scale";
    require(!file_.has(older) || !file_.has(newer), ErrorCode::model,
            "{}: there are both {} and {}; expected one", file_.path(), base::printable(older),
            base::printable(newer));
    return file_.has(older) ? older : file_.has(newer) ? newer : "";
  }

  std::shared_ptr<const std::vector<float>> factors(const std::string& name,
                                                    const TensorEntry& weight) const {
    const TensorEntry& entry = file_.entry(name);
    const int64_t count = entry.elements(), rows = weight.sizes[0];
    const bool column =
        entry.sizes.size() <= 1 || (entry.sizes.size() == 2 && (entry.sizes[1] == 1 || count == 1));
    require(column && (count == 1 || (count == rows && weight.sizes.size() == 2)), ErrorCode::model,
            "{}: tensor {} has the shape [{}]; expected one factor, or one for each of the {} rows "
            "of the weight: {}",
            file_.path(), base::printable(name), fmt::join(entry.sizes, ", "), rows, kInstead);
    const tensor::Tensor tensor = file_.get(name);
    require(is_float(tensor.dtype()), ErrorCode::model, "{}: tensor {} is {}; expected floats: {}",
            file_.path(), base::printable(name), entry.dtype, kInstead);
    const std::vector<float> values = tensor.to_floats();
    for (const float value : values)
      require(std::isfinite(value), ErrorCode::model,
              "{}: tensor {} holds a scale that is infinite or no number; {}", file_.path(),
              base::printable(name), kInstead);
    return std::make_shared<const std::vector<float>>(values);
  }

  // An unused scale would change a weight, so refuse the file.
  void refuse_stray(const std::string& name) const {
    for (const std::string_view tail : {".scale_weight", ".weight_scale", ".scale_input",
                                        ".input_scale", ".comfy_quant", ".weight_scale_2"}) {
      if (!name.ends_with(tail)) continue;
      const std::string weight = name.substr(0, name.size() - tail.size()) + std::string(kWeight);
      if (!tensors_.contains(weight)) continue;
      fail(ErrorCode::model, "{}: tensor {} stands beside {} ({}), which takes no such thing; {}",
           file_.path(), base::printable(name), base::printable(weight), tensors_.at(weight).dtype,
           kInstead);
    }
  }

  const TensorFile& file_;
  std::map<std::string, TensorEntry> tensors_;
  bool scaled_ = false;
  Json layers_;
};

}  // namespace

TensorFile with_scales(const TensorFile& file) {
  const bool any = std::ranges::any_of(file.entries(), [](const auto& entry) {
    return eight_bits(entry.second.dtype) || entry.first == "scaled_fp8" ||
           entry.first.find("scale_weight") != std::string::npos ||
           entry.first.find("weight_scale") != std::string::npos ||
           entry.first.find("comfy_quant") != std::string::npos;
  });
  return any ? Scales(file).apply() : file;
}

}  // namespace tessera::load
