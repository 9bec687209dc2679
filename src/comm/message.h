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

/// One message: a dense tensor, which arrives with the shape and dtype it was sent with, and what
/// the sender says it is for.
struct Message {
  Tag tag;
  tensor::Tensor data;  ///< may have no elements, never undefined
};

}  // namespace tessera::comm
