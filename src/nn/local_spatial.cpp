#include "nn/local_spatial.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

// Lines of x, with the frames before.
Tensor frames_of(const Plane& x, Range lines) {
  Tensor part = x.data.slice(1, lines.begin, lines.end);
  if (!x.before.defined()) return part;
  return ops::concat_rows({x.before.slice(1, lines.begin, lines.end), part});
}

// The filters' result for complete frames.
Tensor summed(std::span<const ops::ConvWeight> taps, const Tensor& frames,
              const ops::Conv2dOptions& options) {
  ops::Conv2dOptions sum = options;
  const ops::DType dtype = options.out_as_input ? frames.dtype() : options.out;
  if (taps.size() > 1 && !options.residual.defined()) {
    sum.out = ops::DType::f32;
    sum.out_as_input = false;
  }
  const int64_t count = frames.size(0) - std::ssize(taps) + 1;
  for (int64_t k = 0; k < std::ssize(taps); ++k) {
    sum.residual = ops::conv2d(frames.slice(0, k, k + count), taps[static_cast<size_t>(k)], sum);
    sum.into_residual = true;
  }
  return ops::cast(sum.residual, dtype);
}

}  // namespace

Plane LocalSpatial::convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                             const ops::Conv2dOptions& options) {
  const int64_t lines = x.data.size(1), size = ops::filter_lines(taps.front());
  const int64_t height = lines + options.pad_top + options.pad_bottom - size + 1;
  const bool plain = options.stride == 1 && !options.upsample && !options.residual.defined() &&
                     std::max(options.pad_top, options.pad_bottom) < size;
  if (chunk_ == 0 || taps.size() == 1 || !plain || height <= chunk_) {
    const Tensor output = summed(taps, frames_of(x, {0, lines}), options);
    return {output, output.size(1), 0};
  }
  Tensor all;
  for (int64_t begin = 0; begin < height; begin += chunk_) {
    const int64_t end = std::min(begin + chunk_, height);
    const int64_t first = begin - options.pad_top, last = end - 1 - options.pad_top + size;
    const Range read{std::max<int64_t>(first, 0), std::min(last, lines)};
    ops::Conv2dOptions piece = options;
    piece.pad_top = static_cast<int>(read.begin - first);
    piece.pad_bottom = static_cast<int>(last - read.end);
    const Tensor part = summed(taps, frames_of(x, read), piece);
    if (!all.defined())
      all = Tensor::empty({part.size(0), height, part.size(2), part.size(3)}, part.dtype(),
                          part.device());
    tensor::copy_into(all.slice(1, begin, end), part);
  }
  return {all, height, 0};
}

// A result line ends in memory no later than its source line, so unread lines are never
// overwritten.
Plane LocalSpatial::narrow(const ops::ConvWeight& weight, Plane x) {
  const int64_t lines = x.data.size(0) * x.data.size(1), width = x.data.size(2);
  const int64_t channels = x.data.size(3);
  if (chunk_ == 0 || lines <= chunk_ || !x.data.dense())
    return {ops::conv2d(x.data, weight, {}), x.height, x.begin};
  const Tensor from = x.data.reshape({1, lines, width, channels});
  Tensor to;
  for (int64_t begin = 0; begin < lines; begin += chunk_) {
    const int64_t end = std::min(begin + chunk_, lines);
    const Tensor part = ops::conv2d(from.slice(1, begin, end), weight, {});
    const int64_t out = part.size(3);
    require(out <= channels, ErrorCode::usage, "a filter of {} channels to {} narrows nothing",
            channels, out);
    if (!to.defined())
      to = from.reshape({from.elements()})
               .slice(0, 0, lines * width * out)
               .reshape({1, lines, width, out});
    tensor::copy_into(to.slice(1, begin, end), part);
  }
  return {to.reshape({x.data.size(0), x.data.size(1), width, to.size(3)}), x.height, x.begin};
}

tensor::Tensor LocalSpatial::moments(const Plane& x, bool together) {
  const tensor::Shape tall{1, x.data.size(0) * x.data.size(1), x.data.size(2), x.data.size(3)};
  return ops::channel_moments(together ? x.data.reshape(tall) : x.data);
}

tensor::Tensor LocalSpatial::attend(const Plane& x, const tensor::Tensor& q,
                                    const tensor::Tensor& k, const tensor::Tensor& v) {
  const int64_t pixels = x.data.size(1) * x.data.size(2);
  std::vector<ops::AttentionSpan> spans;
  for (int64_t r = 0; r < x.data.size(0); ++r)
    spans.push_back({r * pixels, (r + 1) * pixels, r * pixels, (r + 1) * pixels});
  return ops::attention(q, k, v, 1, 1, spans);
}

}  // namespace tessera::nn
