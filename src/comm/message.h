#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace tessera::comm {

/// What a communication is for. It names the operation in errors, traces and byte counts; both
/// sides give the same one.
struct Tag {
  const char* operation = "";
  int site = -1;  ///< layer, or -1
};

/// One message: dense bytes of any shape and dtype, and what the sender says they are for.
struct Message {
  Tag tag;
  tensor::Tensor data;  ///< may have no elements, never undefined
};

}  // namespace tessera::comm
