#include "kernels/group_norm.h"

#include <cmath>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {

void channel_moments(const ChannelMomentsArgs& args) {
  tensor::parallel_for(args.rows * args.channels, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / args.channels, c = i % args.channels;
      tensor::with_float_type(args.dtype, [&](auto type) {
        const auto* x = static_cast<const decltype(type)*>(args.x) + row * args.x_stride + c;
        double mean = 0, variance = 0;
        for (int64_t p = 0; p < args.pixels; ++p) mean += tensor::to_float(x[p * args.channels]);
        mean /= static_cast<double>(args.pixels);
        for (int64_t p = 0; p < args.pixels; ++p) {
          const double d = tensor::to_float(x[p * args.channels]) - mean;
          variance += d * d;
        }
        args.moments[row * 2 * args.channels + c] = static_cast<float>(mean);
        args.moments[(row * 2 + 1) * args.channels + c] =
            static_cast<float>(variance / static_cast<double>(args.pixels));
      });
    }
  });
}

void channel_affine(const ChannelAffineArgs& args) {
  tensor::parallel_for(args.rows * args.pixels, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / args.pixels, pixel = i % args.pixels;
      const float* scale = args.scale_shift + row * 2 * args.channels;
      tensor::with_float_type(args.dtype, [&](auto type) {
        using T = decltype(type);
        const T* x = static_cast<const T*>(args.x) + row * args.x_stride + pixel * args.channels;
        T* y = static_cast<T*>(args.y) + i * args.channels;
        for (int64_t c = 0; c < args.channels; ++c) {
          double v = double{tensor::to_float(x[c])} * scale[c] + scale[args.channels + c];
          if (args.silu) v = v / (1 + std::exp(-v));
          y[c] = tensor::from_float<T>(static_cast<float>(v));
        }
      });
    }
  });
}

}  // namespace tessera::kernels::reference
