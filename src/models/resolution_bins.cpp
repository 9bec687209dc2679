#include "models/resolution_bins.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/fail.h"

namespace tessera::models {
namespace {

struct Side {
  int64_t height, width;
};

// Bins for 256 x 256 pixels; the tables for 512, 1024 and 2048 are these times 2, 4 and 8.
constexpr Side kPixart[] = {{128, 512}, {128, 464}, {144, 448}, {144, 432}, {144, 416}, {160, 400},
                            {160, 384}, {176, 368}, {176, 352}, {176, 336}, {192, 336}, {192, 320},
                            {208, 304}, {208, 288}, {224, 288}, {224, 272}, {240, 272}, {240, 256},
                            {256, 256}, {256, 240}, {272, 240}, {272, 224}, {288, 224}, {288, 208},
                            {304, 208}, {320, 192}, {336, 192}, {352, 176}, {368, 176}, {384, 160},
                            {400, 160}, {432, 144}, {512, 128}};
// Additional bins for 2048.
constexpr Side kPixart2048[] = {{1024, 3968}, {1024, 3840}, {3328, 1152}, {3584, 1152},
                                {3712, 1024}, {3840, 1024}, {3968, 1024}};

// Key of a table: the ratio rounded to two digits. If two keys are equally near, the first in the
// table wins.
double key_of(const Side& side) {
  return std::round(100.0 * double(side.height) / double(side.width)) / 100.0;
}

}  // namespace

PipelineSpec::Bin pixart_bin(int64_t sample_size, int64_t height, int64_t width) {
  require(
      sample_size == 32 || sample_size == 64 || sample_size == 128 || sample_size == 256,
      ErrorCode::model,
      "`binning` on: there is no table of sizes for a sample_size of {}; expected 32, 64, 128 or "
      "256: leave it out",
      sample_size);
  const double ratio = double(height) / double(width);
  PipelineSpec::Bin best;
  double least = INFINITY, best_key = 0;
  const auto look = [&](const Side& side, int64_t times) {
    const double key = key_of(side), away = std::abs(key - ratio);
    if (away > least || (away == least && key > best_key)) return;
    least = away;
    best_key = key;
    best = {side.height * times, side.width * times, true};
  };
  for (const Side& side : kPixart) look(side, sample_size / 32);
  if (sample_size == 256)
    for (const Side& side : kPixart2048) look(side, 1);
  return best;
}

PipelineSpec::Bin hunyuan_dit_bin(int64_t height, int64_t width) {
  height = height / 16 * 16;
  width = width / 16 * 16;
  const struct {
    double ratio;  // width / height
    std::vector<Side> sizes;
  } groups[] = {{1.0, {{1024, 1024}, {1280, 1280}}},
                {4.0 / 3, {{768, 1024}, {864, 1152}, {960, 1280}}},
                {3.0 / 4, {{1024, 768}, {1152, 864}, {1280, 960}}},
                {16.0 / 9, {{768, 1280}}},
                {9.0 / 16, {{1280, 768}}}};
  // A listed size stays unchanged, even if another ratio is nearer.
  for (const auto& group : groups)
    for (const Side& side : group.sizes)
      if (side.height == height && side.width == width) return {height, width, false};
  const double ratio = double(width) / double(height);
  const auto* nearest = &groups[0];
  for (const auto& group : groups)
    if (std::abs(group.ratio - ratio) < std::abs(nearest->ratio - ratio)) nearest = &group;
  Side best = nearest->sizes.front();
  for (const Side& side : nearest->sizes)
    if (std::abs(side.height * side.width - height * width) <
        std::abs(best.height * best.width - height * width))
      best = side;
  return {best.height, best.width, false};
}

}  // namespace tessera::models
