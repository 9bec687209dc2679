#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "nn/split.h"
#include "tensor/dtype.h"

namespace tessera::nn {

/// The identity of a weight within the same files: the form ("matrix"), the names of the tensors,
/// the dtype, and the cut.
inline std::string weight_key(std::string_view form, std::string_view names, tensor::DType dtype,
                              const Cut& cut = {}) {
  std::string key = fmt::format("{} {} {}", form, names, tensor::name_of(dtype));
  for (const Range& r : cut.ranges) key += fmt::format(" {}:{}-{}", cut.axis, r.begin, r.end);
  return key;
}

}  // namespace tessera::nn
