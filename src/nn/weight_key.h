#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "nn/split.h"
#include "tensor/dtype.h"

namespace tessera::nn {

/// What makes two weights of the same files one: the form in which they are asked for ("matrix"),
/// the names of what they are made of, their dtype, and what is taken of them.
inline std::string weight_key(std::string_view form, std::string_view names, tensor::DType dtype,
                              const Cut& cut = {}) {
  std::string key = fmt::format("{} {} {}", form, names, tensor::name_of(dtype));
  for (const Range& r : cut.ranges) key += fmt::format(" {}:{}-{}", cut.axis, r.begin, r.end);
  return key;
}

}  // namespace tessera::nn
