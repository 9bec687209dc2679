#pragma once

#include "comm/message.h"

namespace tessera::comm::nccl {

/// What the host transport carries in place of a message whose elements go by NCCL: its tag, shape
/// and element type, at its place in the order of messages.
struct Parcel {
  Tag tag;
  tensor::Shape shape;
  tensor::DType dtype = tensor::DType::f32;
};

/// The message of the host that stands for one of a device.
Message describe(const Message& message);
/// What a rank tells each other one when it ends, twice: 1, 2.
Message farewell(int which);
/// Whether a message is one of these two, which no communicator sends itself.
bool ours(const Message& message);
bool is_farewell(const Message& message);
/// What describe() was given. Throws Error(rank) for what no rank would send.
Parcel read_parcel(const Message& message);

}  // namespace tessera::comm::nccl
