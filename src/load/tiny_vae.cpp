#include "load/tiny_vae.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/gguf.h"

namespace tessera::load {
namespace {

struct Place {
  std::string_view prefix;  ///< the file's names begin with this prefix
  bool decoder = false;
};
constexpr Place kPlaces[] = {{"taesd_decoder.", true},  {"taesd_encoder.", false},
                             {"decoder.layers.", true}, {"encoder.layers.", false},
                             {"decoder.", true},        {"encoder.", false}};

// Returns the number before the first dot, and sets `rest` to the text from the dot on; -1: none.
int number_of(std::string_view name, std::string_view& rest) {
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return -1;
  rest = name.substr(static_cast<size_t>(end - name.data()));
  return number;
}

// The maker's decoder begins with a layer without weights; diffusers leaves this layer out.
std::string diffusers_name(std::string_view name, const Place& place) {
  std::string_view rest;
  const int number = number_of(name.substr(place.prefix.size()), rest);
  const bool layers = place.prefix.ends_with("layers.");
  const int layer = place.decoder && !layers ? number - 1 : number;
  if (number < 0 || layer < 0) return "";
  return fmt::format("{}.layers.{}{}", place.decoder ? "decoder" : "encoder", layer, rest);
}

const Place* place_of(const std::string& name) {
  for (const Place& place : kPlaces)
    if (name.starts_with(place.prefix)) return &place;
  return nullptr;
}

// A file without prefixes holds the decoder or the encoder alone: the first block of the decoder is
// layer 3, the first block of the encoder is layer 1.
Place bare_place(const TensorFile& file) { return {"", !file.has("1.conv.0.weight")}; }

std::string name_in_diffusers(const TensorFile& file, const std::string& name) {
  const Place* const place = place_of(name);
  return diffusers_name(name, place ? *place : bare_place(file));
}

base::Json config_of(const TensorFile& file, const std::string& path) {
  base::Json config{{"_class_name", kTinyVae}};
  const auto size = [&](const std::string& name, size_t axis) {
    const TensorEntry& entry = file.entry(name);
    require(entry.sizes.size() == 4, ErrorCode::model, "{}: {} has {} axes; expected 4", path, name,
            entry.sizes.size());
    return entry.sizes[axis];
  };
  if (file.has("decoder.layers.0.weight")) {
    config["latent_channels"] = size("decoder.layers.0.weight", 1);
    config["decoder_block_out_channels"] =
        std::vector<int64_t>(4, size("decoder.layers.0.weight", 0));
  }
  if (!file.has("encoder.layers.0.weight")) return config;
  config["encoder_block_out_channels"] =
      std::vector<int64_t>(4, size("encoder.layers.0.weight", 0));
  if (file.has("encoder.layers.14.weight"))
    config["latent_channels"] = size("encoder.layers.14.weight", 0);
  return config;
}

}  // namespace

bool is_tiny_vae(const TensorFile& file) {
  for (const char* name :
       {"decoder.layers.0.weight", "encoder.layers.0.weight", "taesd_decoder.1.weight",
        "taesd_encoder.0.weight", "decoder.3.conv.0.weight", "encoder.1.conv.0.weight",
        "3.conv.0.weight", "1.conv.0.weight"})
    if (file.has(name)) return true;
  return false;
}

TensorFile with_tiny_names(const TensorFile& file) {
  std::map<std::string, TensorEntry> tensors;
  for (const auto& [name, entry] : file.entries()) {
    base::check_stop();
    std::string diffusers = name_in_diffusers(file, name);
    const std::string& own = diffusers.empty() ? name : diffusers;
    require(tensors.emplace(own, entry).second, ErrorCode::model,
            "{}: {} and another tensor are both {}", file.path(), base::printable(name),
            base::printable(own));
  }
  return file.with(std::move(tensors));
}

bool is_other_vae(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) || is_tiny_vae(open_tensor_file(path));
}

Component open_other_vae(const std::string& path, const std::string& part, const char* option) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    ModelFolder folder = open_folder(path);
    require(folder.has("vae"), ErrorCode::usage,
            "{} {}: this folder holds no VAE; expected one with the config.json of an "
            "AutoencoderTiny or AutoencoderKL",
            option, path);
    Component vae = folder.component("vae");
    vae.name = part;
    return vae;
  }
  const TensorFile file = open_tensor_file(path);
  require(
      is_tiny_vae(file), ErrorCode::usage,
      "{} {}: expected the folder of a VAE, or the weights of a TAESD (decoder.layers.0.weight, "
      "taesd_decoder.1.weight or 1.weight)",
      option, path);
  Component vae{part, "diffusers", kTinyVae, path, config_of(with_tiny_names(file), path), {}};
  vae.file = path;
  vae.described = false;
  return vae;
}

}  // namespace tessera::load
