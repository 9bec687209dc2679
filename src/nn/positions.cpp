#include "nn/positions.h"

#include <cmath>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::nn {

using tensor::DType;
using tensor::Tensor;

Tensor sincos_axis(const std::vector<double>& places, int64_t dim) {
  const int64_t count = static_cast<int64_t>(places.size()), half = dim / 2;
  Tensor table = Tensor::empty({count, dim}, DType::f32);
  for (int64_t t = 0; t < count; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          places[static_cast<size_t>(t)] * std::pow(10000.0, -double(i) / double(half));
      table.row<float>(t)[i] = static_cast<float>(std::sin(angle));
      table.row<float>(t)[half + i] = static_cast<float>(std::cos(angle));
    }
  return table;
}

Tensor sincos_grid(const std::vector<double>& lines, const std::vector<double>& columns,
                   int64_t dim) {
  std::vector<double> x, y;
  for (double line : lines)
    for (double column : columns) x.push_back(column), y.push_back(line);
  return ops::concat_columns({sincos_axis(x, dim / 2), sincos_axis(y, dim / 2)});
}

std::vector<double> even_places(int64_t count, double from, double step) {
  std::vector<double> places;
  for (int64_t i = 0; i < count; ++i) places.push_back(from + step * double(i));
  return places;
}

ops::RotaryTable rotary_axes(const std::vector<RotaryAxis>& axes, tensor::Device device,
                             double theta) {
  int64_t pairs = 0;
  for (const RotaryAxis& axis : axes) pairs += axis.pairs;
  const int64_t tokens = static_cast<int64_t>(axes.front().places.size());
  const tensor::Device table_device = device == tensor::Device::meta ? device : tensor::Device::cpu;
  ops::RotaryTable table{Tensor::empty({tokens, pairs}, DType::f32, table_device),
                         Tensor::empty({tokens, pairs}, DType::f32, table_device)};
  if (device == tensor::Device::meta) return table;
  int64_t at = 0;
  for (const RotaryAxis& axis : axes) {
    for (int64_t i = 0; i < axis.pairs; ++i) {
      const double frequency = std::pow(theta, -double(i) / double(axis.pairs));
      for (int64_t t = 0; t < tokens; ++t) {
        const double angle = axis.places[static_cast<size_t>(t)] * frequency;
        table.cos.row<float>(t)[at + i] = static_cast<float>(std::cos(angle));
        table.sin.row<float>(t)[at + i] = static_cast<float>(std::sin(angle));
      }
    }
    at += axis.pairs;
  }
  return {table.cos.to(device), table.sin.to(device)};
}

GridRegion centred_region(int64_t lines, int64_t columns, int64_t base_lines,
                          int64_t base_columns) {
  // Python rounds half to even, as nearbyint does.
  auto nearest = [](double x) { return static_cast<int64_t>(std::nearbyint(x)); };
  const double h = double(lines), w = double(columns);
  int64_t height = base_lines, width = base_columns;
  if (h / w > double(base_lines) / double(base_columns))
    width = nearest(double(base_lines) / h * w);
  else
    height = nearest(double(base_columns) / w * h);
  GridRegion region;
  region.top = nearest(double(base_lines - height) / 2);
  region.left = nearest(double(base_columns - width) / 2);
  region.bottom = region.top + height;
  region.right = region.left + width;
  return region;
}

std::vector<double> spread_places(int64_t begin, int64_t end, int64_t count) {
  if (count < 2) return even_places(count, double(begin));
  const double last = double(end) * double(count - 1) / double(count);
  return even_places(count, double(begin), (last - double(begin)) / double(count - 1));
}

Tensor take_ranges(const Tensor& x, const std::vector<Range>& ranges) {
  std::vector<Range> runs{{0, 0}};
  for (const Range& r : ranges) {
    if (runs.back().size() == 0)
      runs.back() = r;
    else if (runs.back().end == r.begin)
      runs.back().end = r.end;
    else if (r.size() > 0)
      runs.push_back(r);
  }
  std::vector<Tensor> parts;
  for (const Range& r : runs) parts.push_back(x.slice(0, r.begin, r.end));
  return parts.size() == 1 ? parts[0] : ops::concat_rows(parts);
}

Tensor take_tokens(const Tensor& table, int64_t per_sequence, const Segments& segments) {
  std::vector<Range> ranges;
  for (const Segment& s : segments) {
    const int64_t at =
        s.ids.begin < 0 ? s.sequence + 1 : s.sequence;  // text positions count from the end
    ranges.push_back({at * per_sequence + s.ids.begin, at * per_sequence + s.ids.end});
  }
  return take_ranges(table, ranges);
}

ops::RotaryTable take_angles(const ops::RotaryTable& table, const Segments& segments) {
  return {take_tokens(table.cos, 0, segments), take_tokens(table.sin, 0, segments)};
}

std::vector<Range> places_of(const Segments& whole, const Segments& parts) {
  std::vector<Range> places;
  int64_t at = 0;
  size_t next = 0;
  for (const Segment& s : whole) {
    for (; next < parts.size() && parts[next].sequence == s.sequence &&
           parts[next].ids.begin >= s.ids.begin && parts[next].ids.end <= s.ids.end;
         ++next)
      places.push_back(
          {at + parts[next].ids.begin - s.ids.begin, at + parts[next].ids.end - s.ids.begin});
    at += s.ids.size();
  }
  require(next == parts.size(), ErrorCode::usage,
          "tokens were asked for that are not there: {} of {} segments found", next, parts.size());
  return places;
}

}  // namespace tessera::nn
