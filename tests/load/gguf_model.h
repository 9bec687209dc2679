#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "load/gguf_image.h"
#include "load/name_map.h"
#include "load/tensor_set.h"

namespace tessera::load {

/// A number of a type of ggml.
enum class GgufType : uint32_t { f32 = 0, q4_0 = 2, q8_0 = 8, bf16 = 30 };
/// The type of a matrix by its name in the file.
using GgufTypes = std::function<GgufType(const std::string& name)>;

/// Rounds floats to blocks of 32 with a scale in f16.
inline std::string in_blocks(const std::vector<float>& x, GgufType type) {
  const bool eight = type == GgufType::q8_0;
  std::string bytes;
  for (size_t at = 0; at + 32 <= x.size(); at += 32) {
    float most = 0;  // with its sign
    for (size_t i = at; i < at + 32; ++i)
      if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
    const auto half =
        tensor::from_float<tensor::Float16>(eight ? std::fabs(most) / 127 : most / -8);
    GgufImage::number(bytes, half.bits);
    const float scale = tensor::to_float(half), inverse = scale == 0 ? 0 : 1 / scale;
    const auto whole = [&](size_t i) { return static_cast<int>(std::lround(x[at + i] * inverse)); };
    const auto nibble = [&](size_t i) { return std::clamp(whole(i) + 8, 0, 15); };
    for (size_t i = 0; eight && i < 32; ++i)
      GgufImage::number(bytes, static_cast<int8_t>(std::clamp(whole(i), -127, 127)));
    for (size_t i = 0; !eight && i < 16; ++i)
      GgufImage::number(bytes, static_cast<uint8_t>(nibble(i) | nibble(i + 16) << 4));
  }
  return bytes;
}

/// The tensors of a set (f32 or bf16) in one GGUF file: with the names of a table, experts stacked,
/// or with their own. `types`: of matrices; `apart`: gate and up in two tensors; `keys`: adds
/// others.
inline std::string gguf_of(const TensorSet& set, const NameTable* table,
                           const GgufTypes& types = nullptr, bool apart = false,
                           const std::function<void(GgufImage& image)>& keys = nullptr) {
  std::map<std::string, std::map<std::pair<int64_t, std::string>, std::string>> stacks;
  const auto expert_of = [](const std::string& name) -> int64_t {
    const size_t at = name.find(".experts.");
    return at == std::string::npos ? -1 : std::stoll(name.substr(at + 9));
  };
  std::optional<NameMap> map;
  if (table) map.emplace(*table, std::vector<std::string>{});
  for (const std::string& name : set.names()) {
    std::string theirs = map ? map->file_name(name) : name;
    if (theirs.empty()) throw std::logic_error("no name for " + name);
    const size_t both = theirs.find("gate_up_exps");
    if (apart && both != std::string::npos)
      theirs.replace(both, 12, name.ends_with("up_proj.weight") ? "up_exps" : "gate_exps");
    stacks[theirs][{table ? expert_of(name) : -1, name}] = name;
  }
  GgufImage image;
  if (table) image.architecture(table->architectures.front());
  if (keys) keys(image);
  for (const auto& [theirs, parts] : stacks) {
    const TensorEntry& first = set.entry(parts.begin()->second);
    std::vector<int64_t> sizes = first.sizes;
    if (const int64_t last = parts.rbegin()->first.first; last >= 0) {
      sizes[0] *= std::ssize(parts) / (last + 1);
      sizes.insert(sizes.begin(), last + 1);
    }
    GgufType type = first.dtype == "BF16" ? GgufType::bf16 : GgufType::f32;
    if (types && sizes.size() > 1 && sizes.back() % 32 == 0)
      if (const GgufType chosen = types(theirs); chosen != GgufType::f32) type = chosen;
    std::string bytes;
    for (const auto& [key, name] : parts) {
      if (type == GgufType::q4_0 || type == GgufType::q8_0) {
        bytes += in_blocks(set.get(name).to_floats(), type);
        continue;
      }
      std::string part(static_cast<size_t>(set.entry(name).bytes()), '\0');
      set.file(name).read(name, reinterpret_cast<std::byte*>(part.data()));
      bytes += part;
    }
    image.tensor(theirs, sizes, static_cast<uint32_t>(type), bytes);
  }
  return image.bytes();
}

}  // namespace tessera::load
