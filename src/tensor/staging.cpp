#include "tensor/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::tensor {

Staging::Staging(Ways ways) : ways_(std::move(ways)) {}

// The rows of `part`, side by side, must fit into a block.
void Staging::pass(const CopyBox& part, void* stream) {
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % kBlocks;
  if (!block.memory) block.memory = ways_.pinned(kBlock);
  if (block.read) ways_.wait(block.read.get());
  block.read = nullptr;
  auto* const memory = static_cast<std::byte*>(block.memory.get());
  for (int64_t row = 0; row < part.rows; ++row)
    std::memcpy(memory + row * part.width,
                static_cast<const std::byte*>(part.from) + row * part.from_pitch,
                static_cast<size_t>(part.width));
  CopyBox onward = part;
  onward.from = memory;
  onward.from_pitch = part.width;
  ways_.copy(onward, stream);
  block.read = ways_.record(stream);
}

void Staging::upload(const CopyBox& box, void* stream) {
  if (box.width == 0) return;
  const std::lock_guard lock(mutex_);
  const int64_t rows = std::max<int64_t>(kBlock / box.width, 1);
  for (int64_t row = 0; row < box.rows; row += rows)
    for (int64_t at = 0; at < box.width; at += kBlock) {
      CopyBox part = box;
      part.to = static_cast<std::byte*>(box.to) + row * box.to_pitch + at;
      part.from = static_cast<const std::byte*>(box.from) + row * box.from_pitch + at;
      part.rows = std::min(rows, box.rows - row);
      part.width = std::min(kBlock, box.width - at);
      pass(part, stream);
    }
}

}  // namespace tessera::tensor
