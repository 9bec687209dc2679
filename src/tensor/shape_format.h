#pragma once

#include <fmt/format.h>

#include "tensor/shape.h"

/// Shapes as arguments of a message; successful checks build no text.
template <>
struct fmt::formatter<tessera::tensor::Shape> : fmt::formatter<fmt::string_view> {
  auto format(const tessera::tensor::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<fmt::string_view>::format(shape.str(), context);
  }
};
