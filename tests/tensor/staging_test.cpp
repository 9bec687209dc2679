#include "tensor/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace tessera::tensor {
namespace {

// A device without any work until a caller waits.
class LateDevice {
 public:
  Staging::Ways ways() {
    return {.pinned =
                [this](int64_t bytes) {
                  ++blocks;
                  return std::shared_ptr<void>(new std::byte[static_cast<size_t>(bytes)],
                                               std::default_delete<std::byte[]>());
                },
            .copy = [this](const CopyBox& box, void*) { asked_.push_back(box); },
            .record = [this](void*) { return std::make_shared<size_t>(asked_.size()); },
            .wait =
                [this](void* event) {
                  ++waits;
                  work(*static_cast<size_t*>(event));
                }};
  }
  void work(size_t until) {
    for (; done_ < until; ++done_) {
      const CopyBox& box = asked_[done_];
      for (int64_t row = 0; row < box.rows; ++row)
        std::memcpy(static_cast<std::byte*>(box.to) + row * box.to_pitch,
                    static_cast<const std::byte*>(box.from) + row * box.from_pitch,
                    static_cast<size_t>(box.width));
    }
  }
  void finish() { work(asked_.size()); }
  int blocks = 0, waits = 0;

 private:
  std::vector<CopyBox> asked_;
  size_t done_ = 0;
};

std::vector<uint8_t> counting(int64_t size) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

TEST(Staging, TheSourceMayChangeWhenAnUploadReturns) {
  LateDevice device;
  Staging staging(device.ways());
  for (const int64_t size : {int64_t{5}, Staging::kBlock, 9 * Staging::kBlock + 3}) {
    const std::vector<uint8_t> whole = counting(size);
    std::vector<uint8_t> from = whole, to(whole.size());
    staging.upload({.to = to.data(), .from = from.data(), .width = size}, nullptr);
    from.assign(from.size(), 0);
    device.finish();
    EXPECT_EQ(to, whole) << size;
  }
  EXPECT_EQ(device.blocks, Staging::kBlocks);
}

TEST(Staging, RowsKeepTheirPitch) {
  LateDevice device;
  Staging staging(device.ways());
  const int64_t width = Staging::kBlock / 3 + 1, rows = 5;  // two rows a block
  const std::vector<uint8_t> whole = counting((width + 7) * rows);
  std::vector<uint8_t> from = whole, to(static_cast<size_t>((width + 11) * rows), 0);
  staging.upload({.to = to.data(),
                  .to_pitch = width + 11,
                  .from = from.data(),
                  .from_pitch = width + 7,
                  .width = width,
                  .rows = rows},
                 nullptr);
  from.assign(from.size(), 0);
  device.finish();
  for (int64_t row = 0; row < rows; ++row) {
    EXPECT_EQ(
        std::memcmp(&to[static_cast<size_t>(row * (width + 11))],
                    &whole[static_cast<size_t>(row * (width + 7))], static_cast<size_t>(width)),
        0)
        << row;
    EXPECT_EQ(to[static_cast<size_t>(row * (width + 11) + width)], 0);
  }
}

TEST(Staging, WaitsOnlyForABlockThatItNeedsAgain) {
  LateDevice device;
  Staging staging(device.ways());
  uint8_t from = 1, to[Staging::kBlocks + 1] = {};
  for (int i = 0; i < Staging::kBlocks; ++i)
    staging.upload({.to = to + i, .from = &from, .width = 1}, nullptr);
  EXPECT_EQ(device.waits, 0);
  staging.upload({.to = to + Staging::kBlocks, .from = &from, .width = 1}, nullptr);
  EXPECT_EQ(device.waits, 1);
  staging.upload({.to = to, .from = &from, .width = 0}, nullptr);
  EXPECT_EQ(device.waits, 1);
}

}  // namespace
}  // namespace tessera::tensor
