#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "nn/split.h"
#include "ops/matmul.h"

namespace tessera::nn {

/// The identity of a weight within the same files: the form ("matrix"), the names of the tensors,
/// the packed form, and the cut.
inline std::string weight_key(std::string_view form, std::string_view names,
                              const ops::WeightForm& packed, const Cut& cut = {}) {
  std::string key = fmt::format("{} {} {}", form, names, name_of(packed));
  for (const Range& r : cut.ranges) key += fmt::format(" {}:{}-{}", cut.axis, r.begin, r.end);
  return key;
}

}  // namespace tessera::nn
