#include "comm/mpi/wire.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/fail.h"

namespace tessera::comm::mpi {
namespace {

constexpr uint32_t kMagic = 0x54455332;

}  // namespace

Header describe(uint64_t channel, const Message& message) {
  Header header;
  require(message.data.device() == tensor::Device::cpu, ErrorCode::rank,
          "'{}' sends a tensor on {}, which MPI does not carry", message.tag.operation,
          name_of(message.data.device()));
  const size_t length = std::strlen(message.tag.operation);
  require(length < sizeof header.operation, ErrorCode::rank,
          "the name '{}' of a communication is longer than {} characters", message.tag.operation,
          sizeof header.operation - 1);
  header.magic = kMagic;
  header.site = message.tag.site;
  header.channel = channel;
  header.order = message.order;
  header.last = message.last ? 1 : 0;
  header.bytes = message.data.bytes();
  std::copy(message.data.shape().begin(), message.data.shape().end(), header.sizes);
  header.axes = static_cast<uint8_t>(message.data.rank());
  header.dtype = static_cast<uint8_t>(message.data.dtype());
  std::memcpy(header.operation, message.tag.operation, length);
  return header;
}

Message announced(const Header& header, Names& names) {
  const auto check = [](bool good, const char* defect) {
    require(good, ErrorCode::rank,
            "a message arrived whose {}; do all ranks run the same version of the program?",
            defect);
  };
  check(header.magic == kMagic, "header is not one of ours");
  check(header.axes <= tensor::Shape::kMaxRank, "shape has too many axes");
  const auto dtype = static_cast<tensor::DType>(header.dtype);
  check(tensor::size_of(dtype) > 0, "element type is unknown");
  check(std::memchr(header.operation, 0, sizeof header.operation) != nullptr,
        "operation has no end");
  for (int axis = 0; axis < header.axes; ++axis)
    check(header.sizes[axis] >= 0 && header.sizes[axis] < int64_t{1} << 48, "shape is impossible");
  const tensor::Shape shape(std::span<const int64_t>(header.sizes, header.axes));
  check(header.bytes == shape.elements() * tensor::size_of(dtype), "size and shape disagree");
  Message message{
      {names.keep(header.operation), header.site},
      tensor::Tensor::empty(shape, dtype, tensor::Device::cpu, tensor::MemoryClass::buffers)};
  message.order = header.order;
  message.last = header.last != 0;
  return message;
}

size_t size_of(const Notice& notice) {
  return offsetof(Notice, text) +
         (notice.kind == Notice::failed ? std::strlen(notice.text) + 1 : size_t{0});
}

Notice read_notice(const void* bytes, size_t size, int ranks) {
  Notice notice;
  const bool fits = size >= offsetof(Notice, text) && size <= sizeof notice;
  if (fits) std::memcpy(&notice, bytes, size);
  notice.text[sizeof notice.text - 1] = 0;
  require(fits && notice.kind >= Notice::alive && notice.kind <= Notice::signalled &&
              notice.waits_for >= -1 && notice.waits_for < ranks &&
              (notice.kind != Notice::failed || (notice.origin >= -1 && notice.origin < ranks)),
          ErrorCode::rank,
          "a notice of {} bytes arrived that is not one of ours; do all ranks run the same version "
          "of the program?",
          size);
  return notice;
}

}  // namespace tessera::comm::mpi
