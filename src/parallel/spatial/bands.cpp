#include "parallel/spatial/bands.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "tensor/device_pool.h"

namespace tessera::parallel {
namespace {

using nn::Plane;
using nn::Range;
using tensor::Tensor;

Range overlap(Range a, Range b) {
  const Range common{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return common.size() > 0 ? common : Range{};
}

/// The mapping from result lines to image lines: an up-line is a line of the image after doubling,
/// if any.
struct Filter {
  int64_t size, stride, top, bottom, scale;

  Filter(const ops::ConvWeight& weight, const ops::Conv2dOptions& o)
      : size(ops::filter_lines(weight)),
        stride(o.stride),
        top(o.pad_top),
        bottom(o.pad_bottom),
        scale(o.upsample ? 2 : 1) {}

  int64_t height_of(int64_t height) const {
    const int64_t extent = height * scale + top + bottom - size;
    return extent < 0 ? 0 : extent / stride + 1;
  }
  // A result line belongs to the rank with the first line under the filter, without padding.
  Range of(Range lines, int64_t height, int64_t result) const {
    const auto first = [&](int64_t line) {
      return line == height ? result : std::min((line * scale + stride - 1) / stride, result);
    };
    return {first(lines.begin), first(lines.end)};
  }
  int64_t first_up(Range lines) const { return lines.begin * stride - top; }
  int64_t end_up(Range lines) const { return (lines.end - 1) * stride - top + size; }
  /// Image lines read for these result lines, at this height.
  Range read(Range lines, int64_t height) const {
    if (lines.size() <= 0) return {};
    const int64_t begin = std::max<int64_t>(first_up(lines), 0);
    const int64_t end = std::min(end_up(lines), height * scale);
    return {begin / scale, (end + scale - 1) / scale};
  }
};

Tensor lines_of(const Tensor& x, Range lines) { return x.slice(1, lines.begin, lines.end); }

// A copy, for another rank or until the original is overwritten.
Tensor copied(const Tensor& x, tensor::MemoryClass memory) {
  const Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device(), memory);
  tensor::copy_into(copy, x);
  return copy;
}

// Lines stacked for each image: [batch, lines, width, channels] each.
Tensor stacked(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts.front();
  const Tensor& any = parts.front();
  const int64_t batch = any.size(0);
  int64_t lines = 0;
  std::vector<Tensor> flat;
  for (const Tensor& part : parts) {
    lines += part.size(1);
    flat.push_back(part.contiguous().reshape({batch, part.size(1) * part.size(2) * part.size(3)}));
  }
  return ops::concat_columns(flat).reshape({batch, lines, any.size(2), any.size(3)});
}

/// The neighbours' lines during their transfer.
class Halo {
 public:
  Halo(comm::Communicator& ranks, const std::vector<Range>& bands, const std::vector<Range>& needed,
       const nn::Plane& x)
      : x_(x), own_lines_(bands[static_cast<size_t>(ranks.rank())]) {
    const comm::Tag tag{"halo", -1, TrafficKind::decode};
    const auto rank = static_cast<size_t>(ranks.rank());
    for (size_t r = 0; r < bands.size(); ++r) {
      const Range incoming = overlap(bands[r], needed[rank]);
      if (r != rank && incoming.size() > 0)
        parts_.push_back({incoming, ranks.receive(static_cast<int>(r), tag), {}});
    }
    for (size_t r = 0; r < bands.size(); ++r) {
      const Range outgoing = overlap(own_lines_, needed[r]);
      if (r != rank && outgoing.size() > 0)
        ranks.send(static_cast<int>(r), copied(own(outgoing), tensor::MemoryClass::buffers), tag);
    }
  }
  void wait() {
    for (Part& part : parts_) part.lines = part.message.wait();
  }
  /// Lines of the whole image, from the own and the received ones.
  Tensor take(Range lines) const {
    std::vector<std::pair<int64_t, Tensor>> pieces;
    for (const Part& part : parts_)
      if (const Range common = overlap(part.range, lines); common.size() > 0)
        pieces.emplace_back(common.begin, lines_of(part.lines, {common.begin - part.range.begin,
                                                                common.end - part.range.begin}));
    if (const Range common = overlap(own_lines_, lines); common.size() > 0)
      pieces.emplace_back(common.begin, own(common));
    std::sort(pieces.begin(), pieces.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Tensor> parts;
    for (const auto& [begin, part] : pieces) parts.push_back(part);
    return stacked(parts);
  }

 private:
  struct Part {
    Range range;
    comm::Pending message;
    Tensor lines;
  };
  // Including the frames before them.
  Tensor own(Range lines) const {
    const Range local_range{lines.begin - own_lines_.begin, lines.end - own_lines_.begin};
    const Tensor own_lines = lines_of(x_.data, local_range);
    return x_.before.defined() ? ops::concat_rows({lines_of(x_.before, local_range), own_lines})
                               : own_lines;
  }
  const Plane& x_;
  Range own_lines_;
  std::vector<Part> parts_;
};

/// Result lines that read outside a band, and their added data.
struct Edge {
  Range lines;
  Tensor residual;
};

// Above and below, merged if they meet.
std::vector<Edge> edges_of(const Filter& filter, Range band, Range input, int64_t height) {
  const auto read = [&](int64_t line) { return filter.read({line, line + 1}, height); };
  int64_t top = band.begin, bottom = band.end;
  while (top < band.end && read(top).begin < input.begin) ++top;
  while (bottom > top && read(bottom - 1).end > input.end) --bottom;
  std::vector<Edge> edges;
  if (top > band.begin) edges.push_back({{band.begin, top}, {}});
  if (bottom < band.end) edges.push_back({{bottom, band.end}, {}});
  return edges;
}

// f32 [rows, 2, channels] of each rank to moments of whole images; `lines` of each.
Tensor merged(const std::vector<Tensor>& parts, const std::vector<Range>& lines) {
  const Tensor& any = parts.front();
  Tensor result = Tensor::empty(any.shape(), tensor::DType::f32, any.device());
  if (result.is_meta()) return result;
  const int64_t channels = any.size(2);
  for (int64_t i = 0; i < any.size(0) * channels; ++i) {
    const int64_t at = i / channels * 2 * channels + i % channels;
    double count = 0, mean = 0, spread = 0;
    for (size_t r = 0; r < parts.size(); ++r) {
      const float* const part = parts[r].data<float>() + at;
      const auto more = double(lines[r].size());
      if (more == 0) continue;
      const double apart = double(part[0]) - mean;
      spread += more * double(part[channels]) + apart * apart * count * more / (count + more);
      mean += apart * more / (count + more);
      count += more;
    }
    result.data<float>()[at] = static_cast<float>(mean);
    result.data<float>()[at + channels] = static_cast<float>(spread / std::max(count, 1.0));
  }
  return result;
}

// Some result lines, from the present image lines: `input`, with zeros around them.
Tensor run(nn::LocalSpatial& local, std::span<const ops::ConvWeight> taps, const Plane& image,
           Range input, Range lines, ops::Conv2dOptions o) {
  const Filter filter(taps.front(), o);
  if (filter.scale > 1 && lines.size() > 0) {  // the whole result, as usual
    const int64_t first = lines.begin - input.begin * filter.scale;
    const Tensor result = local.convolve(taps, image, o).data;
    return lines_of(result, {first, first + lines.size()});
  }
  const bool none = lines.size() == 0;
  const int64_t before = none ? 0 : input.begin - filter.first_up(lines);
  const int64_t behind = none ? 0 : filter.end_up(lines) - input.end;
  const int64_t line_count = image.data.size(1);
  const int64_t unread = none ? line_count : std::max<int64_t>(-before, 0);
  o.pad_top = static_cast<int>(std::max<int64_t>(before, 0));
  o.pad_bottom = static_cast<int>(std::max<int64_t>(behind, 0));
  const auto rest = [&](const Tensor& x) {
    return x.defined() ? x.slice(1, unread, line_count) : x;
  };
  return local.convolve(taps, {rest(image.data), 0, 0, rest(image.before)}, o).data;
}

}  // namespace

std::vector<std::string> band_problems(const Plan& plan, int64_t lines) {
  if (!plan.vae_apart && plan.vae == 1) return {};
  if (lines == 0)
    return {
        fmt::format("vae={}{} shares out the decoding of images, and nothing is decoded here: "
                    "leave out vae=, or decode with a model that has a VAE",
                    plan.vae_apart ? "+" : "", plan.vae)};
  if (plan.vae <= lines) return {};
  return {
      fmt::format("vae={}: a latent has {} line{}, and each rank one at least; use vae={} or "
                  "less",
                  plan.vae, lines, lines > 1 ? "s" : "", lines)};
}

Range Bands::lines(int64_t height) {
  Cut& cut = cuts_[height];
  cut.clear();
  for (int r = 0; r < ranks_.size(); ++r) cut.push_back(nn::split({0, height}, ranks_.size(), r));
  return own_range(cut);
}

Tensor Bands::join(const Plane& x) {
  const Tensor own = ranks_.rank() == 0 ? x.data : copied(x.data, tensor::MemoryClass::buffers);
  const auto parts = comm::gather(ranks_, 0, own, {"image", -1, TrafficKind::decode});
  return parts.empty() ? x.data.slice(1, 0, 0) : stacked(parts);
}

// The band with zeros around, while neighbouring lines travel; then the edges again.
Plane Bands::convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                      const ops::Conv2dOptions& options) {
  const bool stop_requested = stop_.stop_requested();
  require(!comm::agreed(ranks_, 0, stop_requested, comm::kControl) && !stop_requested,
          ErrorCode::cancelled, "stopped within an image");
  const Filter filter(taps.front(), options);
  require(filter.scale == 1 || (filter.stride == 1 && !options.residual.defined()),
          ErrorCode::usage, "bands of an image are not doubled with a stride or a residual");
  const Cut input_cut = cuts_.at(x.height);
  const int64_t height = filter.height_of(x.height);
  Cut cut, needed;
  for (const Range& lines : input_cut) {
    cut.push_back(filter.of(lines, x.height, height));
    needed.push_back(filter.read(cut.back(), x.height));
  }
  const Range own = own_range(input_cut), band = own_range(cut);
  cuts_[height] = cut;
  Halo halo(ranks_, input_cut, needed, x);
  std::vector<Edge> edges = edges_of(filter, band, own, x.height);
  for (Edge& edge : edges)
    if (options.residual.defined())
      edge.residual = copied(
          lines_of(options.residual, {edge.lines.begin - band.begin, edge.lines.end - band.begin}),
          tensor::MemoryClass::activations);
  const Tensor result = run(local_, taps, x, own, band, options);
  halo.wait();
  for (const Edge& edge : edges) {
    ops::Conv2dOptions o = options;
    o.residual = edge.residual;
    o.into_residual = o.residual.defined();
    const Range read = filter.read(edge.lines, x.height);
    tensor::copy_into(
        lines_of(result, {edge.lines.begin - band.begin, edge.lines.end - band.begin}),
        run(local_, taps, {halo.take(read), 0, 0}, read, edge.lines, o));
  }
  return {result, height, band.begin};
}

// Pixels do not depend on neighbouring lines here.
Plane Bands::narrow(const ops::ConvWeight& weight, Plane x) {
  return local_.narrow(weight, std::move(x));
}

Tensor Bands::moments(const Plane& x, bool together) {
  const Cut& cut = cuts_.at(x.height);
  const Tensor own = own_range(cut).size() > 0
                         ? local_.moments(x, together)
                         : Tensor::zeros({together ? 1 : x.data.size(0), 2, x.data.size(3)},
                                         tensor::DType::f32, x.data.device());
  const tensor::Device device = x.data.device();
  const Tensor message = tensor::is_gpu(device) ? own.to(tensor::Device::cpu) : own;
  const Tensor result =
      merged(comm::all_gather(ranks_, message, {"norm", -1, TrafficKind::decode}).wait(), cut);
  return result.is_meta() ? result : result.to(device);
}

Tensor Bands::attend(const Plane& x, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t batch = x.data.size(0), width = x.data.size(2), channels = k.size(1);
  const comm::Tag tag{"keys", -1, TrafficKind::decode};
  comm::Exchange keys = comm::all_gather(ranks_, k.contiguous(), tag);
  comm::Exchange values = comm::all_gather(ranks_, v.contiguous(), tag);
  const auto whole = [&](comm::Exchange& from) {
    std::vector<Tensor> parts = from.wait();
    for (Tensor& part : parts)
      part =
          part.reshape({batch, batch == 0 ? 0 : part.size(0) / (batch * width), width, channels});
    const Tensor stacked_lines = stacked(parts);
    return stacked_lines.reshape({stacked_lines.elements() / channels, channels});
  };
  const Tensor all_keys = whole(keys), all_values = whole(values);
  const int64_t own_pixels = x.data.size(1) * width, pixels = x.height * width;
  std::vector<ops::AttentionSpan> spans;
  for (int64_t i = 0; i < batch; ++i)
    spans.push_back({i * own_pixels, (i + 1) * own_pixels, i * pixels, (i + 1) * pixels});
  return ops::attention(q, all_keys, all_values, 1, 1, spans);
}

}  // namespace tessera::parallel
