#include "kernels/elementwise.h"

#if defined(__x86_64__)
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

template <Elementwise op>
__m512 compute(__m512 a, __m512 b, __m512 gate, const ElementwiseArgs& args) {
  if constexpr (op == Elementwise::add) return _mm512_add_ps(a, b);
  if constexpr (op == Elementwise::multiply) return _mm512_mul_ps(a, b);
  if constexpr (op == Elementwise::blend)
    return _mm512_fmadd_ps(a, _mm512_set1_ps(args.alpha),
                           _mm512_mul_ps(b, _mm512_set1_ps(args.beta)));
  if constexpr (op == Elementwise::scale)
    return _mm512_mul_ps(_mm512_div_ps(a, _mm512_set1_ps(args.beta)), _mm512_set1_ps(args.alpha));
  if constexpr (op == Elementwise::silu) return silu(a);
  if constexpr (op == Elementwise::gelu_tanh) return gelu_tanh(a);
  if constexpr (op == Elementwise::gelu_erf) return gelu_erf(a);
  if constexpr (op == Elementwise::swiglu) return _mm512_mul_ps(silu(a), b);
  if constexpr (op == Elementwise::add_gated) return _mm512_fmadd_ps(gate, b, a);
  return a;
}

constexpr __mmask16 kWhole = 0xffff;

template <Elementwise op>
void rows(const ElementwiseArgs& args, int64_t begin, int64_t end) {
  constexpr bool kGated = op == Elementwise::add_gated;
  constexpr bool kTwo = kGated || op == Elementwise::add || op == Elementwise::blend ||
                        op == Elementwise::swiglu || op == Elementwise::multiply;
  // Copies, so that the stores cannot change what the loop reads.
  const DType a_dtype = args.a_dtype, b_dtype = args.b_dtype, y_dtype = args.y_dtype;
  for (int64_t t = begin; t < end; ++t) {
    const float* const gate =
        kGated ? args.gate + (args.row_of ? args.row_of[t] : 0) * args.gate_stride : nullptr;
    const auto sixteen = [&](int64_t i, __mmask16 keep) __attribute__((always_inline)) {
      const __m512 a = load(args.a, a_dtype, t * args.a_stride + i, keep);
      const __m512 b =
          kTwo ? load(args.b, b_dtype, t * args.b_stride + i, keep) : _mm512_setzero_ps();
      const __m512 g = kGated ? _mm512_maskz_loadu_ps(keep, gate + i) : _mm512_setzero_ps();
      store(args.y, y_dtype, t * args.y_stride + i, keep, compute<op>(a, b, g, args));
    };
    // Whole vectors without a mask: a masked load waits for a masked store to the same place of
    // another page, and large tensors begin at the same one.
    int64_t i = 0;
    for (; i + 16 <= args.columns; i += 16) sixteen(i, kWhole);
    if (i < args.columns) sixteen(i, lanes(args.columns - i));
  }
}

template <Elementwise op>
void all(const ElementwiseArgs& args) {
  const int64_t grain = args.columns > 0 ? 1 + 32768 / args.columns : 1;
  tensor::parallel_for(args.rows, grain,
                       [&](int64_t begin, int64_t end) { rows<op>(args, begin, end); });
}

}  // namespace

void elementwise(const ElementwiseArgs& args) {
  switch (args.op) {
    case Elementwise::cast: return all<Elementwise::cast>(args);
    case Elementwise::add: return all<Elementwise::add>(args);
    case Elementwise::blend: return all<Elementwise::blend>(args);
    case Elementwise::multiply: return all<Elementwise::multiply>(args);
    case Elementwise::scale: return all<Elementwise::scale>(args);
    case Elementwise::silu: return all<Elementwise::silu>(args);
    case Elementwise::gelu_tanh: return all<Elementwise::gelu_tanh>(args);
    case Elementwise::gelu_erf: return all<Elementwise::gelu_erf>(args);
    case Elementwise::swiglu: return all<Elementwise::swiglu>(args);
    case Elementwise::add_gated: return all<Elementwise::add_gated>(args);
  }
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
