#include "load/fused_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

constexpr int64_t kMostExperts = 65536;  // for each layer, because headers are untrusted
constexpr size_t kMostTensors = size_t{1} << 18;

// Names of the matrices of each expert stacked in the tensor; empty: not such a tensor.
std::vector<std::string> matrices_in(const std::string& name) {
  if (name.ends_with("experts.gate_up_proj")) return {"gate_proj", "up_proj"};
  if (name.ends_with("experts.down_proj")) return {"down_proj"};
  return {};
}

// Adds the matrices of a fused tensor under their own names; false: another kind of tensor, left
// unchanged.
bool split(const std::string& name, const TensorEntry& stacked,
           std::map<std::string, TensorEntry>& tensors) {
  const std::vector<std::string> matrices = matrices_in(name);
  const auto parts = static_cast<int64_t>(matrices.size());
  if (parts == 0 || stacked.sizes.size() != 3 || stacked.bytes() == 0 || stacked.scales ||
      stacked.sizes[0] > kMostExperts || stacked.sizes[1] % parts != 0)
    return false;
  const std::string layer = name.substr(0, name.rfind('.') + 1);
  const int64_t expert_bytes = stacked.stored_bytes() / stacked.sizes[0] / parts;
  std::map<std::string, TensorEntry> entries;
  int64_t at = stacked.begin;
  for (int64_t e = 0; e < stacked.sizes[0]; ++e)
    for (const std::string& matrix : matrices) {
      const std::string expert_name = fmt::format("{}{}.{}.weight", layer, e, matrix);
      base::check_stop();
      if (tensors.contains(expert_name)) return false;
      require(tensors.size() + entries.size() < kMostTensors, ErrorCode::model,
              "the experts of {} are more than {} tensors; expected fewer, download the file again",
              base::printable(name), kMostTensors);
      entries[expert_name] = {stacked.dtype,
                              {stacked.sizes[1] / parts, stacked.sizes[2]},
                              at,
                              at + expert_bytes,
                              stacked.format};
      at += expert_bytes;
    }
  tensors.merge(entries);
  return true;
}

TensorFile with_single_experts(const TensorFile& file) {
  std::map<std::string, TensorEntry> tensors = file.entries();
  bool any = false;
  for (const auto& [name, entry] : file.entries())
    if (split(name, entry, tensors)) any = tensors.erase(name) > 0;
  return any ? file.with(std::move(tensors)) : file;
}

}  // namespace

TensorSet with_single_experts(const TensorSet& tensors) {
  std::vector<TensorFile> files;
  for (const TensorFile& file : tensors.files()) files.push_back(with_single_experts(file));
  TensorSet single(files);
  single.say_choice(tensors.choice());
  return single;
}

}  // namespace tessera::load
