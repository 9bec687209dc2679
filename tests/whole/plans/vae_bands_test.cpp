#include <algorithm>
#include <functional>
#include <optional>

#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "kernels/isa.h"
#include "models/vae/autoencoder_kl.h"
#include "models/vae/cogvideox_vae.h"
#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "parallel/spatial/bands.h"
#include "whole/golden.h"

// vae=K in every VAE: K ranks produce the image of a single rank, for any size, and each holds its
// share.
namespace tessera {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

using Pass = std::function<Tensor(nn::Spatial& spatial)>;

Tensor on_one(const Pass& pass) {
  nn::LocalSpatial whole;
  return pass(whole);
}

Tensor on_ranks(int ranks, const Pass& pass) {
  Tensor made;
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    parallel::Bands bands(world);
    const Tensor mine = pass(bands);
    if (world.rank() == 0) made = mine;
  });
  return made;
}

void expect_alike(const Pass& pass, std::initializer_list<int> ranks, const std::string& what) {
  const Tensor want = on_one(pass);
  for (const int count : ranks) {
    const Tensor got = on_ranks(count, pass);
    ASSERT_EQ(got.shape(), want.shape()) << what << " on " << count;
    EXPECT_LT(golden::max_error(got.to_floats(), want.to_floats()), 1e-5)
        << what << " on " << count << " ranks";
  }
}

models::AutoencoderKLConfig small_images() {
  models::AutoencoderKLConfig c;
  c.norm_num_groups = 4;
  c.block_out_channels = {4, 8, 8, 16};
  return c;
}

models::CogVideoXVaeConfig small_videos() {
  models::CogVideoXVaeConfig c;
  c.block_out_channels = {4, 4, 8, 8};
  c.latent_channels = 4;
  c.layers_per_block = 1;
  c.norm_num_groups = 2;
  return c;
}

Tensor drawn(const tensor::Shape& shape) { return models::RandomWeights().get("x", shape); }

TEST(VaeBands, DecodeImagesOfAnySizeAsOneRank) {
  const models::AutoencoderKL vae(small_images(), models::RandomWeights(), DType::f32);
  const auto decode = [&](const tensor::Shape& shape) -> Pass {
    return [&vae, z = drawn(shape)](nn::Spatial& spatial) { return vae.decode(z, spatial); };
  };
  expect_alike(decode({1, 4, 97, 125}), {3, 5, 7}, "1000 x 776");
  expect_alike(decode({1, 4, 16, 16}), {2, 3, 4, 5, 6, 7, 8}, "128 x 128");
  expect_alike(decode({2, 4, 8, 5}), {2, 3, 7, 8}, "a batch, a line each");
}

TEST(VaeBands, EncodeImagesOfAnySizeAsOneRank) {
  const models::AutoencoderKLEncoder vae(small_images(), models::RandomWeights(), DType::f32);
  const auto encode = [&](const tensor::Shape& shape) -> Pass {
    return [&vae, x = drawn(shape)](nn::Spatial& spatial) {
      const models::VaeMoments m = vae.encode(x, spatial);
      EXPECT_EQ(m.mean.shape(), m.logvar.shape());
      return ops::concat_columns(
          {m.mean.reshape({1, m.mean.elements()}), m.logvar.reshape({1, m.logvar.elements()})});
    };
  };
  expect_alike(encode({1, 3, 776, 1000}), {3, 5, 7}, "1000 x 776");
  expect_alike(encode({1, 3, 71, 43}), {2, 3, 4, 5, 6, 7, 8}, "sides that are not halved evenly");
  expect_alike(encode({2, 3, 64, 40}), {2, 5, 8}, "a batch");
}

TEST(VaeBands, DecodeAndEncodeVideosAsOneRank) {
  const models::CogVideoXVae decoder(small_videos(), models::RandomWeights(), DType::f32);
  const models::CogVideoXVaeEncoder encoder(small_videos(), models::RandomWeights(), DType::f32);
  for (const tensor::Shape& shape : {tensor::Shape{1, 4, 5, 8, 6}, tensor::Shape{2, 4, 2, 9, 5}}) {
    expect_alike([&, z = drawn(shape)](nn::Spatial& s) { return decoder.decode(z, s); },
                 {2, 3, 4, 5, 6, 7, 8}, "a video of latents " + shape.str());
  }
  for (const tensor::Shape& shape :
       {tensor::Shape{1, 3, 9, 64, 40}, tensor::Shape{1, 3, 17, 67, 43}})
    expect_alike([&, x = drawn(shape)](nn::Spatial& s) { return encoder.encode(x, s).mean; },
                 {2, 3, 5, 8}, "a video " + shape.str());
}

// Far from the edges of the image all lines are alike, at the cuts, too.
TEST(VaeBands, AConstantImageHasNoSeams) {
  const models::AutoencoderKL vae(small_images(), models::RandomWeights(), DType::f32);
  Tensor z = Tensor::empty({1, 4, 90, 6}, DType::f32);
  std::fill_n(z.data<float>(), z.elements(), 0.7f);
  const Tensor made =
      on_ranks(3, [&](nn::Spatial& spatial) { return vae.decode(z, spatial); });  // at 240 and 480
  const int64_t width = made.size(3);
  for (int64_t line = 200; line < 520; ++line)
    for (int64_t x = 0; x < width; ++x)
      ASSERT_NEAR(made.data<float>()[line * width + x], made.data<float>()[360 * width + x], 1e-5)
          << "line " << line;
}

TEST(VaeBands, AnImageThatIsConstantButAtTheCutsIsThatOfOneRank) {
  const models::AutoencoderKL vae(small_images(), models::RandomWeights(), DType::f32);
  Tensor z = Tensor::empty({1, 4, 24, 6}, DType::f32);
  std::fill_n(z.data<float>(), z.elements(), 0.7f);
  for (const int64_t line : {7, 8, 15, 16})
    for (int64_t i = 0; i < 6; ++i) z.data<float>()[line * 6 + i] = -3;
  expect_alike([&](nn::Spatial& spatial) { return vae.decode(z, spatial); }, {3}, "bright cuts");
}

TEST(VaeBands, AreTracedAsTheWholeImage) {
  const models::AutoencoderKL vae(small_images(), models::RandomWeights(), DType::f32);
  const Tensor z = drawn({1, 4, 10, 6});
  std::map<std::string, std::vector<float>> one, three;
  nn::LocalSpatial whole;
  vae.decode(z, whole, {.trace = [&](const std::string& name, const Tensor& x) {
               one[name] = x.to_floats();
             }});
  comm::threads::run(3, std::chrono::seconds(60), [&](comm::Communicator& world) {
    parallel::Bands bands(world);
    vae.decode(z, bands, {.trace = [&](const std::string& name, const Tensor& x) {
                 if (world.rank() == 0) three[name] = x.to_floats();
               }});
  });
  EXPECT_EQ(one.size(), 6u);
  ASSERT_EQ(three.size(), one.size());
  for (const auto& [name, x] : one) EXPECT_LT(golden::max_error(three.at(name), x), 1e-5) << name;
}

/// Each rank's peak memory while decoding, including weights, and its computation; counted on meta.
struct Share {
  int64_t peak = 0;
  double flops = 0;
};
std::vector<Share> shares(int ranks, int64_t pixels) {
  models::AutoencoderKLConfig published;
  published.block_out_channels = {128, 256, 512, 512};
  published.layers_per_block = 2;
  std::vector<tensor::Scope> scopes(static_cast<size_t>(ranks));
  for (tensor::Scope& scope : scopes) {
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    scope.meter = std::make_shared<tensor::Meter>();
  }
  const auto decode = [&](nn::Spatial& spatial) {
    const models::AutoencoderKL vae(published, models::RandomWeights(Device::meta), DType::bf16);
    vae.decode(Tensor::empty({1, 4, pixels / 8, pixels / 8}, DType::f32, Device::meta), spatial);
  };
  if (ranks == 1) {
    const tensor::BindScope bind(scopes[0]);
    nn::LocalSpatial whole;
    decode(whole);
  } else {
    comm::simulated::run(scopes, std::chrono::seconds(60), [&](comm::Communicator& world) {
      parallel::Bands bands(world);
      decode(bands);
    });
  }
  std::vector<Share> found;
  for (const tensor::Scope& scope : scopes)
    found.push_back({scope.memory->peak(), scope.meter->total().flops});
  return found;
}

TEST(VaeBands, FourRanksHoldLessThanThirtyPercentEach) {
  for (const int64_t pixels : {2048, 8192}) {
    const int64_t one = shares(1, pixels).front().peak;
    int64_t most = 0;
    for (const Share& each : shares(4, pixels)) most = std::max(most, each.peak);
    EXPECT_LE(double(most), 0.3 * double(one)) << pixels << " pixels";
    if (pixels != 2048 || kernels::active_isa() < kernels::Isa::avx512) continue;
    EXPECT_NEAR(double(one) / 1e9, 4.41, 0.005) << "as docs/plans.md says";
    EXPECT_NEAR(double(most) / 1e9, 1.19, 0.005) << "as docs/plans.md says";
  }
}

// --vae-chunk: equal bits, on a single rank and on several.
void expect_chunked(const Pass& pass, const std::string& what) {
  const auto bits = [&](int64_t chunk, int ranks) {
    Tensor made;
    if (ranks == 1) {
      nn::LocalSpatial whole(chunk);
      return pass(whole).to_floats();
    }
    comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
      parallel::Bands bands(world, {}, chunk);
      const Tensor mine = pass(bands);
      if (world.rank() == 0) made = mine;
    });
    return made.to_floats();
  };
  for (const int ranks : {1, 2, 3}) {
    const std::vector<float> want = bits(0, ranks);
    for (const int64_t chunk : {1, 3, 16})
      EXPECT_TRUE(bits(chunk, ranks) == want)
          << what << ", " << chunk << " lines at a time on " << ranks;
  }
}

TEST(VaeChunk, GivesTheBitsOfAllLines) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const models::RandomWeights weights;
    const models::AutoencoderKL decoder(small_images(), weights, dtype);
    const models::AutoencoderKLEncoder encoder(small_images(), weights, dtype);
    for (const tensor::Shape& shape : {tensor::Shape{1, 4, 13, 9}, tensor::Shape{2, 4, 6, 5}})
      expect_chunked([&, z = drawn(shape)](nn::Spatial& s) { return decoder.decode(z, s); },
                     "an image of latents " + shape.str());
    expect_chunked(
        [&, x = drawn({1, 3, 71, 43})](nn::Spatial& s) { return encoder.encode(x, s).mean; },
        "71 x 43 pixels");
    const models::CogVideoXVae videos(small_videos(), weights, dtype);
    const models::CogVideoXVaeEncoder back(small_videos(), weights, dtype);
    for (const tensor::Shape& shape :
         {tensor::Shape{1, 4, 5, 7, 6}, tensor::Shape{2, 4, 1, 5, 5}})  // a frame before two
      expect_chunked([&, z = drawn(shape)](nn::Spatial& s) { return videos.decode(z, s); },
                     "a video of latents " + shape.str());
    expect_chunked(
        [&, x = drawn({1, 3, 9, 67, 43})](nn::Spatial& s) { return back.encode(x, s).mean; },
        "a video of 67 x 43 pixels");
  }
}

// The peak memory of a pass, on meta or not, without weights.
int64_t held(Device device, const tensor::Shape& shape, int64_t chunk,
             const std::function<void(const Tensor& x, nn::Spatial& spatial)>& pass) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  nn::LocalSpatial spatial(chunk);
  pass(Tensor::zeros(shape, DType::f32, device), spatial);
  return scope.memory->peak();
}

// Published sizes, counted on meta.
TEST(VaeChunk, TakesLessMemory) {
  const models::RandomWeights weights(Device::meta);
  models::AutoencoderKLConfig images;
  images.block_out_channels = {128, 256, 512, 512};
  images.layers_per_block = 2;
  const models::AutoencoderKL decoder(images, weights, DType::bf16);
  const models::CogVideoXVae videos(models::CogVideoXVaeConfig{}, weights, DType::bf16);
  const models::CogVideoXVaeEncoder back(models::CogVideoXVaeConfig{}, weights, DType::bf16);
  const auto expect_gigabytes = [](const tensor::Shape& shape, double all, double some,
                                   const auto& pass) {
    const auto found = [&](int64_t chunk) {
      return double(held(Device::meta, shape, chunk, pass)) / 1e9;
    };
    found(0);  // derived filters stay with the weights
    EXPECT_NEAR(found(0), all, 0.01) << shape.str() << ", as docs/plans.md says";
    EXPECT_NEAR(found(16), some, 0.01) << shape.str() << ", as docs/plans.md says";
  };
  expect_gigabytes({1, 4, 256, 256}, 4.30, 3.23,
                   [&](const Tensor& z, nn::Spatial& spatial) { decoder.decode(z, spatial); });
  expect_gigabytes({1, 16, 3, 60, 90}, 8.92, 5.73,
                   [&](const Tensor& z, nn::Spatial& spatial) { videos.decode(z, spatial); });
  expect_gigabytes({1, 3, 9, 480, 720}, 6.11, 3.72,
                   [&](const Tensor& x, nn::Spatial& spatial) { back.encode(x, spatial); });
}

// The norm before the second filter of a resnet at full size needs the whole result of the first,
// and the residual is an image of full size, too.
TEST(VaeChunk, AnEncoderOfImagesHoldsTwoWholeOnes) {
  models::AutoencoderKLConfig config;
  config.block_out_channels = {128, 256, 512, 512};
  config.layers_per_block = 2;
  const models::RandomWeights weights(Device::meta);
  const models::AutoencoderKLEncoder encoder(config, weights, DType::bf16);
  const double pixels = 2048 * 2048, given = pixels * 3 * 4, two = 2 * pixels * 128 * 2;
  for (const int64_t chunk : {0, 16}) {
    const auto most =
        double(held(Device::meta, {1, 3, 2048, 2048}, chunk,
                    [&](const Tensor& x, nn::Spatial& spatial) { encoder.encode(x, spatial); }));
    EXPECT_NEAR(most / 1e9, 2.20, 0.01) << "as docs/plans.md says";
    EXPECT_NEAR(most, two + given, 0.001 * most);
  }
}

TEST(VaeChunk, MetaPredictsIt) {
  for (const int64_t chunk : {0, 5}) {
    const auto peaks = [&](Device device) {
      const models::RandomWeights weights(device);
      const models::AutoencoderKL images(small_images(), weights, DType::bf16);
      const models::CogVideoXVae videos(small_videos(), weights, DType::bf16);
      const auto image = [&](const Tensor& z, nn::Spatial& s) { images.decode(z, s); };
      const auto video = [&](const Tensor& z, nn::Spatial& s) { videos.decode(z, s); };
      held(device, {1, 4, 1, 1}, 0, image);  // derived filters stay with the weights
      held(device, {1, 4, 1, 1, 1}, 0, video);
      return std::pair(held(device, {1, 4, 13, 9}, chunk, image),
                       held(device, {1, 4, 5, 7, 6}, chunk, video));
    };
    EXPECT_EQ(peaks(Device::cpu), peaks(Device::meta)) << chunk << " lines";
  }
}

// So do their times where links are free.
TEST(VaeBands, RanksComputeTheirShareAndLittleMore) {
  const double one = shares(1, 1024).front().flops;
  for (const int ranks : {2, 4, 8})
    for (const Share& each : shares(ranks, 1024))
      EXPECT_LE(each.flops, 1.15 * one / ranks) << ranks << " ranks";
}

}  // namespace
}  // namespace tessera
