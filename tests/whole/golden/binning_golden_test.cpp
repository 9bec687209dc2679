#include <gtest/gtest.h>

#include "media/resize.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using tensor::Tensor;

TEST(BinningGolden, ResizesAndCropsAsDiffusers) {
  for (const std::string& folder : golden::diffusers_cases("io_binning.safetensors", 1)) {
    const load::SafetensorsFile io(folder + "/io_binning.safetensors");
    const Tensor whole = io.get("image");
    const Tensor image = whole.reshape({whole.size(1), whole.size(2), whole.size(3)});
    int compared = 0;
    for (const auto& [name, entry] : io.entries()) {
      if (!name.starts_with("resize_")) continue;
      const Tensor got = media::resize_and_crop(image, entry.sizes[2], entry.sizes[3]);
      EXPECT_LT(golden::max_error(got.to_floats(), io.get(name).to_floats()), 1e-5)
          << folder << " " << name;
      ++compared;
    }
    EXPECT_GE(compared, 3) << folder;
  }
}

}  // namespace
}  // namespace tessera
