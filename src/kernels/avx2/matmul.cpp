#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/avx2/product.h"
#include "kernels/avx2/vector.h"
#include "kernels/wide/stream.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {
namespace {

constexpr int kMostRows = 6, kTiles = 1;  // 12 of 16 registers hold sums

}  // namespace

#include "kernels/wide/products.inc"

const Engine& multiply_add_engine() {
  static constexpr Engine kEngine{.most = kMostRows,
                                  .padded = false,
                                  .rows_for_bf16 = DType::f32,
                                  .sweep = sweep<Way::widen>,
                                  .kernels = row_kernels,
                                  .extend = extend<Way::widen>,
                                  .chunk = chunk_of<Way::widen>};
  return kEngine;
}

const Engine& engine_for(const PackedWeight& weight) {
  if (weight.int8_rows)
    return weight.int4 ? int4_engine(has_avx_vnni()) : int8_engine(has_avx_vnni());
  if (weight.int4) return nibble_engine(has_avx_vnni());
  return weight.dtype == DType::i8 ? digit_engine(has_avx_vnni()) : multiply_add_engine();
}

void matmul(const MatmulArgs& args) { multiply(engine_for(*args.weight), args); }

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
