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

void group_scale_shift(const GroupScaleShiftArgs& args) {
  const int64_t channels = args.channels, width = channels / args.groups;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float *mean = args.moments + row * 2 * channels, *variance = mean + channels;
    float *scale = args.scale_shift + row * 2 * channels, *shift = scale + channels;
    for (int64_t g = 0; g < channels; g += width) {
      double center = 0, spread = 0;
      for (int64_t c = g; c < g + width; ++c) center += mean[c];
      center /= static_cast<double>(width);
      for (int64_t c = g; c < g + width; ++c)
        spread += variance[c] + (mean[c] - center) * (mean[c] - center);
      const double rate = 1 / std::sqrt(spread / static_cast<double>(width) + double{args.eps});
      for (int64_t c = g; c < g + width; ++c) {
        const double gain = rate * (args.weight ? args.weight[c] : 1);
        scale[c] = static_cast<float>(gain);
        shift[c] = static_cast<float>((args.bias ? args.bias[c] : 0) - center * gain);
      }
    }
  }
}

}  // namespace tessera::kernels::reference
