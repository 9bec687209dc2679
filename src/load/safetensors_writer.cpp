#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "load/safetensors.h"

namespace tessera::load {
namespace {

using Json = nlohmann::ordered_json;
using tensor::Tensor;

std::string header_text(const std::vector<PlannedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const PlannedTensor& x : tensors) {
    header[x.name] = {{"dtype", x.dtype}, {"shape", x.sizes}, {"data_offsets", {at, at + x.bytes}}};
    at += x.bytes;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // 8 bytes for the length
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<PlannedTensor> entries;
  for (const auto& [name, x] : tensors) {
    require(x.defined() && !x.is_meta(), ErrorCode::usage, "tensor {} has no elements to write",
            base::printable(name));
    entries.push_back(
        {name, spelled(x.dtype()), {x.shape().begin(), x.shape().end()}, x.bytes(), [&x = x] {
           return x.contiguous();
         }});
  }
  // Widest elements first, then by name: with an aligned header every tensor is aligned.
  std::ranges::stable_sort(entries, std::greater(), [&](const PlannedTensor& x) {
    return size_of(tensors.at(x.name).dtype());
  });
  write_safetensors(path, entries, metadata);
}

void write_safetensors(const std::string& path, const std::vector<PlannedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  for (const PlannedTensor& x : tensors)
    require(x.name != "__metadata__", ErrorCode::usage,
            "a tensor cannot be named '__metadata__': the safetensors format reserves it");
  const std::string header = header_text(tensors, metadata);
  require(
      static_cast<int64_t>(header.size()) <= kLongestHeader, ErrorCode::usage,
      "'{}' would need a header of {} bytes; expected at most {}: write fewer tensors or metadata",
      path, header.size(), kLongestHeader);
  base::OutputFile out(path);
  char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  out.write(length, sizeof length);
  out.write(header.data(), header.size());
  for (const PlannedTensor& x : tensors) {
    const Tensor dense = x.make();
    require(dense.bytes() == x.bytes, ErrorCode::usage,
            "tensor {} was to have {} bytes, and came with {}", base::printable(x.name), x.bytes,
            dense.bytes());
    if (x.bytes > 0) out.write(dense.raw(), static_cast<size_t>(x.bytes));
  }
  out.commit();
}

}  // namespace tessera::load
