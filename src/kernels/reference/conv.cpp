#include "kernels/conv.h"

#include <cmath>
#include <span>
#include <vector>

#include "kernels/reference/integers.h"
#include "tensor/scope.h"

namespace tessera::kernels::reference {
namespace {

using tensor::DType;

double load(const void* data, DType dtype, int64_t at) {
  return tensor::with_float_type(dtype, [&](auto type) {
    return double{tensor::to_float(static_cast<const decltype(type)*>(data)[at])};
  });
}

/// Input of a row after scale, shift and SiLU, rounded to the filter's dtype.
struct Input {
  std::vector<float> values;
  std::vector<double> scales{};  // i8: a scale for each pixel
};

Input input_of(const ConvArgs& args, int64_t row) {
  const int64_t in = args.weight->in, count = args.height * args.width * in;
  const float* scale = args.scale_shift ? args.scale_shift + row * 2 * in : nullptr;
  Input x{std::vector<float>(static_cast<size_t>(count))};
  for (int64_t i = 0; i < count; ++i) {
    double v = load(args.x, args.dtype, row * args.x_stride + i);
    if (scale) v = v * scale[i % in] + scale[in + i % in];
    if (args.silu) v = v / (1 + std::exp(-v));
    float f = static_cast<float>(v);
    if (args.weight->dtype == DType::bf16) f = tensor::to_float(tensor::to_bfloat16(f));
    x.values[static_cast<size_t>(i)] = f;
  }
  if (args.weight->dtype != DType::i8) return x;
  for (int64_t at = 0; at < count; at += in) {
    const std::span pixel(x.values.data() + at, static_cast<size_t>(in));
    x.scales.push_back(quantise_row(pixel));
  }
  return x;
}

// Sums of all output channels at a pixel.
template <class T>
void sums_at(const ConvArgs& args, const Input& x, int64_t oy, int64_t ox, double* sums) {
  const PackedConv& w = *args.weight;
  const int64_t scale = args.upsample ? 2 : 1;
  const float* scales = w.scales.defined() ? w.scales.data<float>() : nullptr;
  for (int64_t o = 0; o < w.out; ++o) sums[o] = w.bias.defined() ? w.bias.data<float>()[o] : 0;
  for (int64_t ky = 0; ky < w.kh; ++ky)
    for (int64_t kx = 0; kx < w.kw; ++kx) {
      const int64_t iy = oy * args.stride + ky - args.pad_top;
      const int64_t ix = ox * args.stride + kx - args.pad_left;
      if (iy < 0 || ix < 0 || iy >= args.height * scale || ix >= args.width * scale) continue;
      const int64_t p = (iy / scale) * args.width + ix / scale;
      const float* pixel = x.values.data() + p * w.in;
      const double of_pixel = x.scales.empty() ? 1 : x.scales[static_cast<size_t>(p)];
      for (int64_t o = 0; o < w.out; ++o) {
        const T* filter = w.data.data<T>() + ((o * w.kh + ky) * w.kw + kx) * w.in;
        double sum = 0;
        for (int64_t i = 0; i < w.in; ++i) sum += double{pixel[i]} * value_of(filter[i]);
        sums[o] += sum * of_pixel * (scales ? scales[o] : 1);
      }
    }
}

}  // namespace

void conv(const ConvArgs& args) {
  const int64_t out = args.weight->out, pixels = args.out_height * args.out_width;
  for (int64_t row = 0; row < args.rows; ++row) {
    const Input x = input_of(args, row);
    tensor::parallel_for(args.out_height, 1, [&](int64_t first, int64_t last) {
      std::vector<double> sums(static_cast<size_t>(out));
      for (int64_t p = first * args.out_width; p < last * args.out_width; ++p) {
        const int64_t oy = p / args.out_width, ox = p % args.out_width;
        with_weight_type(args.weight->dtype,
                         [&](auto type) { sums_at<decltype(type)>(args, x, oy, ox, sums.data()); });
        for (int64_t o = 0; o < out; ++o) {
          const int64_t at = (row * pixels + p) * out + o;
          double value = sums[static_cast<size_t>(o)];
          if (args.residual) value += load(args.residual, args.y_dtype, at);
          tensor::with_float_type(args.y_dtype, [&](auto type) {
            using T = decltype(type);
            static_cast<T*>(args.y)[at] = tensor::from_float<T>(static_cast<float>(value));
          });
        }
      }
    });
  }
}

}  // namespace tessera::kernels::reference
