#include "kernels/matmul.h"

#if defined(__x86_64__)
#include "kernels/amx/engine.h"
#include "kernels/amx/sweep.h"
#include "kernels/amx/tiles.h"

namespace tessera::kernels::amx {

const avx512::Engine& engine() {
  static constexpr avx512::Engine kEngine{.most = kRows,
                                          .padded = true,
                                          .rows_for_bf16 = tensor::DType::bf16,
                                          .sweep = sweep<Tiles>,
                                          .kernels = avx512::row_kernels,
                                          .extend = extend<Tiles>,
                                          .chunk = chunk_of};
  return kEngine;
}

const avx512::Engine& engine_for(const PackedWeight& weight) {
  return weight.dtype == tensor::DType::bf16 ? engine() : avx512::engine_for(weight);
}

void matmul(const MatmulArgs& args) { avx512::multiply(engine_for(*args.weight), args); }

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
