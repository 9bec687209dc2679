#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor/device_pool.h"

namespace tessera::tensor {

/// A fake device with some bytes of host memory and a record of calls.
class FakeRuntime : public DeviceRuntime {
 public:
  explicit FakeRuntime(int64_t capacity = int64_t{1} << 30) : capacity_(capacity) {}
  ~FakeRuntime() override {
    for (const auto& [memory, bytes] : blocks_) std::free(memory);
  }
  std::string name() const override { return "Fake GPU"; }
  DeviceMemory memory() const override { return {capacity_ - used_, capacity_}; }
  void enter() override { ++entered; }
  void* allocate(int64_t bytes) override {
    if (used_ + bytes > capacity_) return nullptr;
    void* const memory = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
    blocks_[memory] = bytes;
    used_ += bytes;
    return memory;
  }
  int multiprocessors() const override { return 100; }
  void free(void* memory) override {
    if (const auto now = std::exchange(on_free, nullptr)) now();
    used_ -= blocks_.at(memory);
    blocks_.erase(memory);
    std::free(memory);
    ++freed;
  }
  void copy(const CopyBox& box, CopyWay way, void*) override {
    for (int64_t row = 0; row < box.rows; ++row)
      std::memcpy(static_cast<std::byte*>(box.to) + row * box.to_pitch,
                  static_cast<const std::byte*>(box.from) + row * box.from_pitch,
                  static_cast<size_t>(box.width));
    copies.push_back(way);
  }
  void zero(void* to, int64_t bytes, void*) override {
    std::memset(to, 0, static_cast<size_t>(bytes));
  }
  void synchronise(void*) override { ++waits; }
  std::shared_ptr<void> make_stream() override { return std::make_shared<int>(); }
  std::shared_ptr<void> record(void*) override { return std::make_shared<int>(); }
  void wait(void*, void*) override {}
  bool done(void*) override { return true; }

  int64_t used() const { return used_; }
  int entered = 0, freed = 0, waits = 0;
  std::vector<CopyWay> copies;
  std::function<void()> on_free;  // once

 private:
  int64_t capacity_, used_ = 0;
  std::map<void*, int64_t> blocks_;
};

}  // namespace tessera::tensor
