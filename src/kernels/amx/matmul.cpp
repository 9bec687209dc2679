#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/amx/engine.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/vector.h"
#include "kernels/nibbles.h"
#include "kernels/wide/stream.h"

TESSERA_AVX512_BEGIN
#include "kernels/amx/sweep.inc"
// Behind the blocks.
#include "kernels/amx/groups.inc"
TESSERA_AVX512_END

namespace tessera::kernels::amx {
namespace {

// Rows as digits of VNNI, which has signed integers too, in groups of two tiles.
avx512::Engine padded(avx512::Engine engine, decltype(avx512::Engine::sweep) sweep) {
  engine.most = kRows;
  engine.padded = true;
  engine.sweep = sweep;
  return engine;
}

}  // namespace

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

const avx512::Engine& int8_engine() {
  static const avx512::Engine kEngine = padded(avx512::int8_engine(), int8_sweep<Int8Tiles>);
  return kEngine;
}

const avx512::Engine& int4_engine() {
  static const avx512::Engine kEngine = padded(avx512::int4_engine(), int4_sweep<Int8Tiles>);
  return kEngine;
}

const avx512::Engine& engine_for(const PackedWeight& weight) {
  if (weight.dtype == tensor::DType::bf16) return engine();
  if (!weight.int8_rows) return avx512::engine_for(weight);
  return weight.int4 ? int4_engine() : int8_engine();
}

void matmul(const MatmulArgs& args) { avx512::multiply(engine_for(*args.weight), args); }

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
