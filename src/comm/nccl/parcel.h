#pragma once

#include "comm/message.h"

namespace tessera::comm::nccl {

/// The host transport's replacement for a message with elements by NCCL: the tag, shape and element
/// type, at the place in the order of messages.
struct Parcel {
  Tag tag;
  tensor::Shape shape;
  tensor::DType dtype = tensor::DType::f32;
};

/// The host message for a device message.
Message describe(const Message& message);
/// A rank's word to each peer at the end, sent twice: 1, 2.
Message farewell(int number);
/// True for these two messages, which communicators never send.
bool ours(const Message& message);
bool is_farewell(const Message& message);
/// The argument of describe(). Throws Error(rank) for messages foreign to this program.
Parcel read_parcel(const Message& message);

}  // namespace tessera::comm::nccl
