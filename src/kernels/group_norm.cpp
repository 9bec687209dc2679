#include "kernels/group_norm.h"

#include <algorithm>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::kernels {

void merge_moment_runs(const ChannelMomentsArgs& args, const float* sums) {
  const int64_t channels = args.channels, runs = args.runs();
  const double pixels = static_cast<double>(args.pixels);
  for (int64_t row = 0; row < args.rows; ++row) {
    std::vector<double> total(static_cast<size_t>(2 * channels));
    for (int64_t r = 0; r < runs; ++r, sums += 2 * channels)
      for (int64_t i = 0; i < 2 * channels; ++i) total[static_cast<size_t>(i)] += double{sums[i]};
    float* moments = args.moments + row * 2 * channels;
    tensor::with_float_type(args.dtype, [&](auto type) {
      const auto* center = static_cast<const decltype(type)*>(args.x) + row * args.x_stride;
      for (int64_t c = 0; c < channels; ++c) {
        const double shift = total[static_cast<size_t>(c)] / pixels;
        const double variance = total[static_cast<size_t>(channels + c)] / pixels - shift * shift;
        moments[c] = static_cast<float>(double{tensor::to_float(center[c])} + shift);
        moments[channels + c] = static_cast<float>(std::max(variance, 0.0));
      }
    });
  }
}

}  // namespace tessera::kernels
