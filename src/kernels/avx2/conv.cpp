#include "kernels/conv.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "kernels/avx2/vector.h"
#include "kernels/matmul.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {
namespace {

constexpr int64_t kPixels = 1024;  // of a product: their patches stay small

// The input under the filter at output pixel p of a row: [kh * kw, in], zeros beyond the image.
void copy_patch(const ConvArgs& a, int64_t row, int64_t p, float* out) {
  const PackedConv& w = *a.weight;
  const int64_t doubled = a.upsample ? 1 : 0;
  const float* scale = a.scale_shift ? a.scale_shift + row * 2 * w.in : nullptr;
  for (int64_t tap = 0; tap < w.kh * w.kw; ++tap, out += w.in) {
    const int64_t y = p / a.out_width * a.stride + tap / w.kw - a.pad_top;
    const int64_t z = p % a.out_width * a.stride + tap % w.kw - a.pad_left;
    if (y < 0 || z < 0 || y >= a.height << doubled || z >= a.width << doubled) {
      std::fill_n(out, w.in, 0.0f);
      continue;
    }
    const int64_t pixel = row * a.x_stride + ((y >> doubled) * a.width + (z >> doubled)) * w.in;
    for (int64_t i = 0; i < w.in; i += 16) {
      const Keep keep = lanes(w.in - i);
      Floats v = load(a.x, a.dtype, pixel + i, keep);
      if (scale) v = fmadd(v, load(scale + i, keep), load(scale + w.in + i, keep));
      if (a.silu) v = silu(v);
      put(out + i, keep, v);
    }
  }
}

}  // namespace

void conv(const ConvArgs& a) {
  const PackedConv& w = *a.weight;
  const int64_t depth = w.kh * w.kw * w.in, pixels = a.out_height * a.out_width;
  const PackedWeight filter{.n = w.out, .k = depth, .dtype = w.dtype, .isa = w.isa, .data = w.data};
  const auto element = size_of(a.y_dtype);
  for (int64_t row = 0; row < a.rows; ++row)
    for (int64_t first = 0; first < pixels; first += kPixels) {
      const int64_t count = std::min(kPixels, pixels - first);
      std::vector<float> patches(static_cast<size_t>(count * depth));
      tensor::parallel_for(count, 16, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          copy_patch(a, row, first + p, patches.data() + p * depth);
      });
      const int64_t at = (row * pixels + first) * w.out * element;
      MatmulArgs product{.x = patches.data(),
                         .x_dtype = DType::f32,
                         .x_stride = depth,
                         .rows = count,
                         .weight = &filter,
                         .epilogue = {},
                         .y = static_cast<std::byte*>(a.y) + at,
                         .y_dtype = a.y_dtype,
                         .y_stride = w.out};
      product.epilogue.bias = w.bias.defined() ? w.bias.data<float>() : nullptr;
      if (a.residual) {
        product.epilogue.residual = static_cast<const std::byte*>(a.residual) + at;
        product.epilogue.residual_dtype = a.y_dtype;
        product.epilogue.residual_stride = w.out;
      }
      matmul(product);
    }
}

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
