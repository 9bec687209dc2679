#include "media/lanczos.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/fail.h"
#include "media/read_image.h"

namespace tessera::media {
namespace {

constexpr int kBits = 22;  // bits of a weight

/// The input samples of an output sample, with their weights.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

double lobes(double x) {
  if (x < -3 || x >= 3) return 0;
  const auto sinc = [](double t) {
    return t == 0 ? 1.0 : std::sin(std::numbers::pi * t) / (std::numbers::pi * t);
  };
  return sinc(x) * sinc(x / 3);
}

std::vector<Taps> taps_of(int from, int to) {
  const double scale = double(from) / to, spread = std::max(scale, 1.0);
  std::vector<Taps> taps_by_place;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const auto first =
        std::max<int64_t>(static_cast<int64_t>(std::floor(centre - 3 * spread + 0.5)), 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(std::floor(centre + 3 * spread + 0.5)), from);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t k = first; k < end; ++k) {
      weights.push_back(lobes((double(k) - centre + 0.5) / spread));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (const double weight : weights) {
      const double share = sum == 0 ? weight : weight / sum;
      taps.weights.push_back(static_cast<int32_t>(share * (1 << kBits) + (share < 0 ? -0.5 : 0.5)));
    }
    taps_by_place.push_back(std::move(taps));
  }
  return taps_by_place;
}

// Resamples along a single side.
Pixels pass(const Pixels& from, int to, bool across) {
  const int side = across ? from.width : from.height;
  if (side == to) return from;
  Pixels result = from;
  (across ? result.width : result.height) = to;
  result.bytes.assign(size_t(result.width) * size_t(result.height) * size_t(result.channels), 0);
  const std::vector<Taps> taps_by_place = taps_of(side, to);
  const size_t row = size_t(from.width) * size_t(from.channels);
  const size_t step = across ? size_t(from.channels) : row;
  for (int y = 0; y < result.height; ++y)
    for (int x = 0; x < result.width; ++x) {
      const Taps& taps = taps_by_place[static_cast<size_t>(across ? x : y)];
      const size_t begin = across ? size_t(y) * row : size_t(x) * size_t(from.channels);
      for (int c = 0; c < from.channels; ++c) {
        int64_t sum = int64_t{1} << (kBits - 1);
        size_t at = begin + static_cast<size_t>(taps.first) * step + static_cast<size_t>(c);
        for (const int32_t weight : taps.weights) {
          sum += int64_t{weight} * from.bytes[at];
          at += step;
        }
        const size_t place = (size_t(y) * size_t(result.width) + size_t(x)) * size_t(from.channels);
        result.bytes[place + size_t(c)] =
            static_cast<uint8_t>(std::clamp<int64_t>(sum >> kBits, 0, 255));
      }
    }
  return result;
}

// Pastes an image at (left, top) into another image; the part outside is clipped.
void paste(const Pixels& from, int left, int top, Pixels& to) {
  for (int y = std::max(top, 0); y < std::min(top + from.height, to.height); ++y)
    for (int x = std::max(left, 0); x < std::min(left + from.width, to.width); ++x)
      std::copy_n(&from.bytes[(size_t(y - top) * size_t(from.width) + size_t(x - left)) *
                              size_t(from.channels)],
                  from.channels,
                  &to.bytes[(size_t(y) * size_t(to.width) + size_t(x)) * size_t(to.channels)]);
}

// Fills pixels outside the image with the nearest border pixel.
void stretch_borders(int left, int top, int width, int height, Pixels& to) {
  for (int y = 0; y < to.height; ++y)
    for (int x = 0; x < to.width; ++x) {
      const int column = std::clamp(x, left, left + width - 1);
      const int line = std::clamp(y, top, top + height - 1);
      if (column == x && line == y) continue;
      std::copy_n(
          &to.bytes[(size_t(line) * size_t(to.width) + size_t(column)) * size_t(to.channels)],
          to.channels, &to.bytes[(size_t(y) * size_t(to.width) + size_t(x)) * size_t(to.channels)]);
    }
}

// Box filter over a line of samples `step` apart: each becomes the mean of the samples within the
// radius.
void box_line(const std::vector<uint8_t>& from, size_t begin, size_t step, int count, float radius,
              std::vector<uint8_t>& to) {
  const int whole = static_cast<int>(radius);
  const auto full = static_cast<uint32_t>((1 << 24) / (radius * 2 + 1));
  const auto ends =
      static_cast<uint32_t>(((1 << 24) - (uint32_t(whole) * 2 + 1) * uint64_t{full}) / 2);
  const auto sample = [&](int i) {
    return uint64_t{from[begin + size_t(std::clamp(i, 0, count - 1)) * step]};
  };
  uint64_t sum = 0;
  for (int i = -whole; i <= whole; ++i) sum += sample(i);
  for (int i = 0; i < count; ++i) {
    const uint64_t beyond = sample(i - whole - 1) + sample(i + whole + 1);
    const uint64_t bulk = sum * full + beyond * ends + (1 << 23);
    to[begin + size_t(i) * step] = static_cast<uint8_t>(bulk >> 24);
    sum += sample(i + whole + 1) - sample(i - whole);
  }
}

// Radius of a box with the standard deviation of a Gaussian after three passes; in f32, as in
// Pillow.
float box_radius(float sigma) {
  const float squares = sigma * sigma / 3.0f;
  const auto length = static_cast<float>(std::sqrt(12.0 * double(squares) + 1.0));
  const auto whole = static_cast<float>(std::floor((double(length) - 1.0) / 2.0));
  const float rest = (2 * whole + 1) * (whole * (whole + 1) - 3 * squares);
  return whole + rest / (6 * (squares - (whole + 1) * (whole + 1)));
}

}  // namespace

Pixels resize_lanczos(const Pixels& from, int width, int height) {
  require(
      from.width > 0 && from.height > 0 && width > 0 && height > 0 && width <= kMostPixels / height,
      ErrorCode::usage, "an image of {} x {} pixels cannot become {} x {}", from.width, from.height,
      width, height);
  const bool down = height < from.height && from.height - height > 2 * (from.width - width);
  if (down) return pass(pass(from, height, false), width, true);
  return pass(pass(from, width, true), height, false);
}

Pixels fit_pixels(const Pixels& from, int width, int height, Fitting fitting) {
  if (fitting == Fitting::stretch) return resize_lanczos(from, width, height);
  const double ratio = double(width) / height, from_ratio = double(from.width) / from.height;
  const auto scaled = [](int64_t side, int64_t to, int64_t of) {
    return static_cast<int>(side * to / of);
  };
  const bool wider = fitting == Fitting::fill ? ratio >= from_ratio : ratio <= from_ratio;
  const int wide = wider ? scaled(from.width, height, from.height) : width;
  const bool taller = fitting == Fitting::fill ? ratio < from_ratio : ratio > from_ratio;
  const int tall = taller ? scaled(from.height, width, from.width) : height;
  const Pixels middle = resize_lanczos(from, std::max(wide, 1), std::max(tall, 1));
  const int left = width / 2 - middle.width / 2, top = height / 2 - middle.height / 2;
  Pixels result{width, height, from.channels, {}};
  result.bytes.assign(size_t(width) * size_t(height) * size_t(from.channels), 0);
  paste(middle, left, top, result);
  if (fitting == Fitting::fill) stretch_borders(left, top, middle.width, middle.height, result);
  return result;
}

Pixels cut_middle(const Pixels& from, int width, int height) {
  Pixels result{width, height, from.channels, {}};
  result.bytes.assign(size_t(width) * size_t(height) * size_t(from.channels), 0);
  paste(from, -((from.width - width) / 2), -((from.height - height) / 2), result);
  return result;
}

Pixels pixels_of(const Image& image) { return {image.width, image.height, 3, image.rgb}; }

Pixels grey_of(const Image& image) {
  Pixels grey{image.width, image.height, 1, std::vector<uint8_t>(image.rgb.size() / 3)};
  for (size_t i = 0; i < grey.bytes.size(); ++i)
    grey.bytes[i] =
        static_cast<uint8_t>((19595u * image.rgb[i * 3] + 38470u * image.rgb[i * 3 + 1] +
                              7471u * image.rgb[i * 3 + 2] + 32768u) >>
                             16);
  return grey;
}

Pixels blurred(const Pixels& grey, double radius) {
  if (radius <= 0) return grey;
  const float box = box_radius(static_cast<float>(radius));
  Pixels result = grey;
  const auto width = static_cast<size_t>(grey.width), height = static_cast<size_t>(grey.height);
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint8_t> from = result.bytes;
    for (size_t y = 0; y < height; ++y) box_line(from, y * width, 1, grey.width, box, result.bytes);
  }
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint8_t> from = result.bytes;
    for (size_t x = 0; x < width; ++x) box_line(from, x, width, grey.height, box, result.bytes);
  }
  return result;
}

}  // namespace tessera::media
