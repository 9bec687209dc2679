#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/experts.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// Bytes under way between two ranks of a GPU at once: enough for the speed of its memory.
inline constexpr int64_t kDeviceWindow = int64_t{32} << 20;

using ExpertView = kernels::ExpertView;

/// The agreement of the ranks, for layers of equal form.
struct DeviceSize {
  int ranks = 1;
  std::vector<int> owner;  ///< the rank of each expert
  int64_t tokens = 0;      ///< the most of a rank
  int64_t slots = 1;       ///< experts of a token
  int64_t hidden = 0, inner = 0;
  tensor::DType dtype = tensor::DType::f32, weights = tensor::DType::f32;
  kernels::Activation activation = kernels::Activation::swiglu;

  bool operator==(const DeviceSize&) const = default;
};

/// A rank's tensors of a layer, in device memory.
struct DeviceLayer {
  const void* x = nullptr;  ///< [tokens, hidden]
  int64_t x_stride = 0, tokens = 0;
  const int32_t* ids = nullptr;    ///< [tokens, slots]; -1: none
  const float* weights = nullptr;  ///< [tokens, slots]; read for sums only
  const void* shared = nullptr;    ///< [tokens, hidden], or null
  int64_t shared_stride = 0;
  const ExpertView* bank = nullptr;  ///< the rank's experts
  void* y = nullptr;                 ///< [tokens, hidden]; null: no sums
  /// [tokens * slots, hidden]: results of experts; rows of id -1 stay as they were. Null: memory of
  /// the operator.
  void* rows = nullptr;
};

/// A rank on a GPU of its own, beside others that launch the same layers there.
struct DevicePeers {
  int rank = 0;
  /// Symmetric buffers of all ranks, of device_buffer_bytes() zeros: memory that this GPU may
  /// write; null: of a rank on another host, reached by NVSHMEM. Empty: all ranks are here.
  std::vector<std::byte*> buffers{};
};

/// MoE layers of ranks on a GPU, each a single launch.
class DeviceLayers {
 public:
  virtual ~DeviceLayers() = default;
  /// A layer of the ranks here, in rank order; returns at the end. Throws Error(usage) for arrays
  /// of a wrong size, Error(rank) with rank, flag and epoch for a missing arrival.
  virtual void run(std::span<const DeviceLayer> layers) = 0;
};

/// The operator of the program's GPU (fused/cuda). Throws Error(usage) for sizes without a kernel,
/// and in a program without CUDA.
std::unique_ptr<DeviceLayers> open_device_layers(const DeviceSize& size,
                                                 const DevicePeers& peers = {});
/// Bytes of a symmetric buffer; equal on GPUs of one kind.
int64_t device_buffer_bytes(const DeviceSize& size);

/// Replaces both functions in tests; without functions: no replacement.
struct DeviceLayersSource {
  std::function<std::unique_ptr<DeviceLayers>(const DeviceSize&, const DevicePeers&)> open{};
  std::function<int64_t(const DeviceSize&)> buffer_bytes{};
};
void replace_device_layers(DeviceLayersSource source);

}  // namespace tessera::fused
