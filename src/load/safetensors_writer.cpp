#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "load/safetensors.h"

namespace tessera::load {
namespace {

using Json = nlohmann::ordered_json;
using tensor::Tensor;
using Item = std::pair<const std::string*, const Tensor*>;

// Widest elements first, then by name: with an aligned header every tensor is aligned.
std::vector<Item> in_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<Item> items;
  for (const auto& [name, x] : tensors) {
    require(x.defined() && !x.is_meta(), ErrorCode::usage, "tensor {} has no elements to write",
            base::printable(name));
    require(name != "__metadata__", ErrorCode::usage,
            "a tensor cannot be named '__metadata__': the safetensors format reserves it");
    items.emplace_back(&name, &x);
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return size_of(a.second->dtype()) > size_of(b.second->dtype());
  });
  return items;
}

std::string header_text(const std::vector<Item>& items,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const auto& [name, x] : items) {
    const std::vector<int64_t> sizes(x->shape().begin(), x->shape().end());
    header[*name] = {
        {"dtype", spelled(x->dtype())}, {"shape", sizes}, {"data_offsets", {at, at + x->bytes()}}};
    at += x->bytes();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::vector<Item> items = in_order(tensors);
  const std::string header = header_text(items, metadata);
  require(
      static_cast<int64_t>(header.size()) <= kLongestHeader, ErrorCode::usage,
      "'{}' would need a header of {} bytes; expected at most {}: write fewer tensors or metadata",
      path, header.size(), kLongestHeader);
  base::OutputFile out(path);
  char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  out.write(length, sizeof length);
  out.write(header.data(), header.size());
  for (const auto& [name, x] : items) {
    const Tensor dense = x->contiguous();
    if (dense.bytes() > 0) out.write(dense.raw(), static_cast<size_t>(dense.bytes()));
  }
  out.commit();
}

}  // namespace tessera::load
