#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "nn/weights.h"

namespace tessera::nn {

/// The identity of a weight within the same files: the form ("matrix"), the names of the tensors,
/// the packed form, and the cut.
inline std::string weight_key(std::string_view form, std::string_view names,
                              const ops::WeightForm& packed, const Cut& cut = {}) {
  std::string key = fmt::format("{} {} {}", form, names, name_of(packed));
  for (const Range& r : cut.ranges) key += fmt::format(" {}:{}-{}", cut.axis, r.begin, r.end);
  return key;
}

/// The same before the packed form is known; a table is a stored tensor.
inline std::string weight_key(const WeightRequest& request) {
  constexpr std::string_view kForms[] = {"stored", "stored", "vector", "matrix", "paired", "conv"};
  const std::string names =
      request.second.empty() ? request.name : request.name + " " + request.second;
  return weight_key(kForms[static_cast<size_t>(request.form)], names, request.compute, request.cut);
}

}  // namespace tessera::nn
