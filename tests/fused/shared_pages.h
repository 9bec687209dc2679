#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/fail.h"
#include "fused/peer_buffers.h"
#include "fused/peer_device.h"

namespace tessera::fused {

/// Pages of the host in place of a GPU's memory: the files that travel are real ones.
class SharedPages final : public PeerDevice {
 public:
  /// The faults of a rank's device.
  struct Faults {
    std::string problem{};    ///< with all peers
    bool allocates = true;    ///< false: has no memory
    int64_t bytes_less = 0;   ///< its file ends so much earlier
    int64_t mappings = 1000;  ///< mappings of peers' memory before failures
  };
  explicit SharedPages(Faults faults) : faults_(std::move(faults)) {}

  std::string problem(const std::string&) const override { return faults_.problem; }
  ExportedMemory allocate(int64_t bytes) override {
    require(faults_.allocates, ErrorCode::memory, "no memory");
    ExportedMemory exported{nullptr, base::Descriptor(memfd_create("test", MFD_CLOEXEC))};
    require(ftruncate(exported.file, bytes) == 0, ErrorCode::memory, "no pages");
    exported.memory = mapped(exported.file, bytes);
    require(ftruncate(exported.file, bytes - faults_.bytes_less) == 0, ErrorCode::memory,
            "no pages");
    return exported;
  }
  std::shared_ptr<std::byte> map(int file, int64_t bytes) override {
    require(faults_.mappings-- > 0, ErrorCode::rank, "no mapping");
    return mapped(file, bytes);
  }

 private:
  static std::shared_ptr<std::byte> mapped(int file, int64_t bytes) {
    struct stat status {};
    require(fstat(file, &status) == 0 && status.st_size == bytes, ErrorCode::rank,
            "a file of {} bytes; expected {}", status.st_size, bytes);
    void* const memory =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    require(memory != MAP_FAILED, ErrorCode::rank, "no mapping of {} bytes", bytes);
    return {static_cast<std::byte*>(memory),
            [bytes](std::byte* at) { munmap(at, static_cast<size_t>(bytes)); }};
  }
  Faults faults_;
};

/// A GPU of this process's host for each rank, by number.
inline GpuPlace own_gpu(int rank) {
  GpuPlace place{comm::Whereabouts::here()};
  const std::string address = "0000:0" + std::to_string(rank) + ":00.0";
  address.copy(place.address.data(), place.address.size() - 1);
  return place;
}

/// Each rank has such a GPU, until destruction.
class GpuOfEachRank {
 public:
  explicit GpuOfEachRank(std::function<SharedPages::Faults(int rank)> faults = nullptr) {
    replace_gpu_places(own_gpu);
    replace_peer_devices([faults](int rank) {
      return std::make_unique<SharedPages>(faults ? faults(rank) : SharedPages::Faults{});
    });
  }
  ~GpuOfEachRank() {
    replace_peer_devices(nullptr);
    replace_gpu_places(nullptr);
  }
  GpuOfEachRank(const GpuOfEachRank&) = delete;
  GpuOfEachRank& operator=(const GpuOfEachRank&) = delete;
};

}  // namespace tessera::fused
