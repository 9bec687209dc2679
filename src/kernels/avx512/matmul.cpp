#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/bf16_path.h"
#include "kernels/wide/stream.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr int kMostRows = 14, kTiles = 2;  // 28 of 32 registers hold sums

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

const Engine& dot_engine() {
  static constexpr Engine kEngine{.most = kMostRows,
                                  .padded = false,
                                  .rows_for_bf16 = DType::bf16,
                                  .sweep = sweep<Way::dot>,
                                  .kernels = row_kernels,
                                  .extend = extend<Way::dot>,
                                  .chunk = chunk_of<Way::dot>};
  return kEngine;
}

const Engine& engine() {
  return active_bf16_path() == Bf16Path::dot ? dot_engine() : multiply_add_engine();
}

const Engine& engine_for(const PackedWeight& weight) {
  if (weight.int8_rows) return weight.int4 ? int4_engine() : int8_engine();
  if (weight.int4) return nibble_engine();
  return weight.dtype == DType::i8 ? digit_engine() : engine();
}

void matmul(const MatmulArgs& args) { multiply(engine_for(*args.weight), args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
