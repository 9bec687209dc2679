#include "fused/cuda/kernel.h"
#include "fused/cuda/roles.cuh"

// Tests compile the same kernels with seeded faults.
#if !defined(TESSERA_FUSED_FAULTS)
#define TESSERA_FUSED_FAULTS ::tessera::fused::cuda::Sound
#endif

namespace tessera::fused::cuda {
namespace {

/// A kernel for some weights and activations, and its shape.
struct Kernel {
  void (*function)(Work) = nullptr;
  int threads = 0;     ///< threads of a block
  int64_t shared = 0;  ///< bytes of a processor
  KernelTiles tiles{};

  kernels::cuda::Launch shape(const Work& w) const {
    const int64_t scheduler = Snapshot::bytes(w.layout, w.processors);
    return {.blocks = int64_t{w.rank_count} * (1 + w.processors),
            .threads = threads,
            .shared = shared > scheduler ? shared : scheduler,
            .resident = true};
  }
};

template <class Products, class Faults>
Kernel kernel_of() {
  return {moe_layer_kernel<Products, Faults>,
          kThreads + Products::kFetching,
          Products::kShared + int64_t{sizeof(Desk)},
          {Products::kRows, Products::Up::kColumns, Products::Down::kColumns, Products::kMapRows}};
}

template <bool Paired, class Faults>
Kernel kernel_for(DType weights, bool groups) {
  using tensor::BFloat16, tensor::Float16;
  if (weights == DType::f32) return kernel_of<PlainProducts<Paired>, Faults>();
  if (weights == DType::bf16)
    return groups ? kernel_of<FetchedProducts<BFloat16, Paired>, Faults>()
                  : kernel_of<WarpProducts<BFloat16, Paired>, Faults>();
  if (weights == DType::f16)
    return groups ? kernel_of<FetchedProducts<Float16, Paired>, Faults>()
                  : kernel_of<WarpProducts<Float16, Paired>, Faults>();
  return groups ? kernel_of<GroupProducts<int8_t, Paired>, Faults>()
                : kernel_of<WarpProducts<int8_t, Paired>, Faults>();
}

Kernel kernel_for(DType weights, Activation kind) {
  const bool groups = kernels::cuda::has_warpgroups();
  return kernels::is_paired(kind) ? kernel_for<true, TESSERA_FUSED_FAULTS>(weights, groups)
                                  : kernel_for<false, TESSERA_FUSED_FAULTS>(weights, groups);
}

}  // namespace

KernelTiles kernel_tiles(DType weights, Activation kind) { return kernel_for(weights, kind).tiles; }

bool reaches_far() {
#if defined(TESSERA_NVSHMEM) || defined(TESSERA_EMULATED_DEVICE)
  return true;
#else
  return false;
#endif
}

int resident_blocks(const Work& work) {
  const Kernel kernel = kernel_for(work.weights, work.activation);
  return kernels::cuda::resident_blocks("fused experts", kernel.function, kernel.shape(work));
}

void launch_layer(const Work& work) {
  const Kernel kernel = kernel_for(work.weights, work.activation);
  kernels::cuda::launch("fused experts", kernel.function, kernel.shape(work), work);
}

}  // namespace tessera::fused::cuda
