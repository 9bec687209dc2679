#include "diffusion/encode_images.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::diffusion {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor counted(const tensor::Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i);
  return x;
}

nn::TokenLayout layout() {
  nn::TokenLayout layout;
  layout.channels = 2;
  layout.size = {1, 4, 6};
  layout.patch = {1, 2, 2};
  return layout;
}

TEST(EncodeImages, ChannelsBehindTheNoiseBecomeConditioning) {
  std::map<std::string, Tensor> conditioning;
  const Tensor packed = counted({1, 6, 11});
  const Tensor latent = take_fill(packed, layout(), "in.safetensors", conditioning);
  EXPECT_EQ(latent.shape(), (tensor::Shape{1, 6, 8}));
  const Tensor fill = conditioning.at("fill_tokens");
  EXPECT_EQ(fill.shape(), (tensor::Shape{1, 6, 3}));
  EXPECT_EQ(fill.to_floats()[0], 8);
  EXPECT_EQ(latent.to_floats()[8], 11);
  EXPECT_THROW(take_fill(counted({1, 6, 8}), layout(), "in.safetensors", conditioning), Error);
}

TEST(EncodeImages, FillTokensHoldTheImageThenTheMaskOfEverySequence) {
  Job job;
  job.planned.layout = layout();
  job.planned.labels = {"a", "b"};
  job.asked.conditioning.tensors["prompt"] = counted({4, 1, 1});  // two samples, two branches
  job.asked.source.emplace();
  job.asked.source->takes_mean = true;
  job.asked.source->mask_pixels = counted({1, 3, 4, 6});
  set_fill({}, job);
  const Tensor before = job.asked.conditioning.tensors.at("fill_tokens");
  EXPECT_EQ(before.shape(), (tensor::Shape{4, 6, 8 + 12}));
  EXPECT_EQ(before.to_floats()[7], 0) << "not encoded yet";
  job.asked.source->masked = counted({1, 3, 8, 12});
  job.asked.source->masked_mean = counted({1, 2, 4, 6});
  set_fill({}, job);
  const std::vector<float> all = job.asked.conditioning.tensors.at("fill_tokens").to_floats();
  // The first token: 2 x 2 pixels of each channel of the latent, then of each of the mask.
  const std::vector<float> first(all.begin(), all.begin() + 20);
  EXPECT_EQ(first, (std::vector<float>{0, 1, 6,  7,  24, 25, 30, 31, 0,  1,
                                       6, 7, 24, 25, 30, 31, 48, 49, 54, 55}));
  for (size_t s = 1; s < 4; ++s)
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + 120, all.begin() + ptrdiff_t(120 * s))) << s;
}

}  // namespace
}  // namespace tessera::diffusion
