#include "parallel/spatial/bands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <set>

#include "comm/threads/launch.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using nn::Plane;
using tensor::DType;
using tensor::Tensor;

Tensor drawn(const tensor::Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  return Tensor::from(std::span<const float>(values), shape);
}

/// Runs a piece of a network on an image's lines.
using Pass = std::function<Plane(nn::Spatial& spatial, const Plane& x)>;

Plane mine(nn::Spatial& spatial, const Tensor& image) {
  const nn::Range lines = spatial.lines(image.size(1));
  const Tensor own =
      Tensor::empty({image.size(0), lines.size(), image.size(2), image.size(3)}, DType::f32);
  tensor::copy_into(own, image.slice(1, lines.begin, lines.end));
  return {own, image.size(1), lines.begin};
}

std::vector<float> on_one(const Tensor& image, const Pass& pass) {
  nn::LocalSpatial whole;
  return pass(whole, mine(whole, image)).data.to_floats();
}

std::vector<float> on_ranks(int ranks, const Tensor& image, const Pass& pass,
                            comm::Ledger* sent = nullptr) {
  std::vector<float> made;
  comm::threads::run(ranks, std::chrono::seconds(20), [&](comm::Communicator& world) {
    Bands bands(world);
    const Tensor whole = bands.join(pass(bands, mine(bands, image)));
    if (world.rank() == 0) made = whole.to_floats();
    if (world.rank() > 0) {
      EXPECT_EQ(whole.size(1), 0) << "the first rank has the image";
    }
    if (sent && world.rank() == 1) *sent = world.ledger();
  });
  return made;
}

constexpr int kRanks[] = {2, 3, 5, 7, 8};

/// A filter with its options.
struct Use {
  int64_t size = 3;
  ops::Conv2dOptions options;
};
std::vector<Use> uses() {
  const auto padded = [](int stride, int top, int bottom) {
    return ops::Conv2dOptions{
        .stride = stride, .pad_top = top, .pad_bottom = bottom, .pad_left = 1, .pad_right = 1};
  };
  std::vector<Use> all{{1, {}},
                       {3, padded(1, 1, 1)},
                       {3, padded(2, 0, 1)},
                       {3, padded(2, 1, 1)},
                       {5, padded(1, 2, 2)},
                       {3, padded(1, 0, 0)}};
  all.push_back(all[1]);
  all.back().options.upsample = true;
  return all;
}

TEST(Bands, EveryFilterGivesThePixelsOfOneRank) {
  for (const Use& use : uses())
    for (const int64_t height : {1, 2, 5, 8, 13, 21})
      for (const int64_t taps : {1, 3}) {
        if (height + use.options.pad_top + use.options.pad_bottom < use.size) continue;
        std::vector<ops::ConvWeight> filters;
        for (int64_t k = 0; k < taps; ++k)
          filters.push_back(ops::pack_conv(drawn({6, 4, use.size, use.size}, 3 + uint32_t(k)),
                                           k == 0 ? drawn({6}, 9) : Tensor(), DType::f32));
        const Tensor image = drawn({taps + 1, height, 7, 4}, 1);
        const Pass pass = [&](nn::Spatial& spatial, const Plane& x) {
          ops::Conv2dOptions o = use.options;
          o.silu = true;
          return spatial.convolve(filters, x, o);
        };
        const auto want = on_one(image, pass);
        for (const int ranks : kRanks)
          EXPECT_EQ(on_ranks(ranks, image, pass), want)
              << "filter " << use.size << ", stride " << use.options.stride << ", padding "
              << use.options.pad_top << " and " << use.options.pad_bottom << ", doubled "
              << use.options.upsample << ", " << taps << " taps, " << height << " lines on "
              << ranks << " ranks";
      }
}

// As in an encoder: bands of odd height are halved twice, then a residual is added in place.
TEST(Bands, ResidualsAreOverwrittenOnceTheirEdgesAreRead) {
  const ops::ConvWeight down = ops::pack_conv(drawn({4, 4, 3, 3}, 5), {}, DType::f32),
                        same = ops::pack_conv(drawn({4, 4, 3, 3}, 6), drawn({4}, 7), DType::f32);
  const Pass pass = [&](nn::Spatial& spatial, Plane x) {
    const ops::Conv2dOptions halved{.stride = 2, .pad_bottom = 1, .pad_right = 1};
    ops::Conv2dOptions kept{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
    for (int i = 0; i < 2; ++i) {
      const Plane h = spatial.conv(same, x, kept);
      ops::Conv2dOptions onto = kept;
      onto.scale_shift = spatial.scale_shift({2, {}, {}, 1e-6f}, h);
      onto.residual = x.data;
      onto.into_residual = true;
      x = spatial.conv(down, spatial.conv(same, h, onto), halved);
    }
    return spatial.conv(same, x, kept);
  };
  for (const int64_t height : {9, 23, 40}) {
    const Tensor image = drawn({2, height, 11, 4}, 2);
    const auto want = on_one(image, pass);
    for (const int ranks : kRanks) {
      const auto got = on_ranks(ranks, image, pass);
      ASSERT_EQ(got.size(), want.size());
      double worst = 0, largest = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(double(got[i]) - double(want[i])));
        largest = std::max(largest, std::abs(double(want[i])));
      }
      EXPECT_LT(worst, 1e-5 * largest) << height << " lines on " << ranks << " ranks";
    }
  }
}

TEST(Bands, MomentsAreThoseOfWholeImagesAndAlikeOnAllRanks) {
  const Tensor image = drawn({3, 13, 6, 5}, 4);
  for (const bool together : {false, true}) {
    nn::LocalSpatial whole;
    const auto want = whole.moments({image, 13, 0}, together).to_floats();
    for (const int ranks : {2, 3, 7, 16}) {  // 16: some have no line
      std::mutex mutex;
      std::set<std::vector<float>> seen;
      comm::threads::run(ranks, std::chrono::seconds(20), [&](comm::Communicator& world) {
        Bands bands(world);
        const auto found = bands.moments(mine(bands, image), together).to_floats();
        const std::lock_guard lock(mutex);
        seen.insert(found);
      });
      ASSERT_EQ(seen.size(), 1u) << ranks << " ranks";
      ASSERT_EQ(seen.begin()->size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR((*seen.begin())[i], want[i], 1e-6) << ranks << " ranks, " << together;
    }
  }
}

// Sums of squares would make this 0, or less.
TEST(Bands, MomentsOfALargeMeanKeepTheirSpread) {
  Tensor image = drawn({1, 12, 5, 2}, 8);
  for (int64_t i = 0; i < image.elements(); ++i)
    image.data<float>()[i] = 10000 + 0.01f * image.data<float>()[i];
  nn::LocalSpatial whole;
  const auto want = whole.moments({image, 12, 0}).to_floats();
  comm::threads::run(5, std::chrono::seconds(20), [&](comm::Communicator& world) {
    Bands bands(world);
    const auto got = bands.moments(mine(bands, image)).to_floats();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.05 * std::abs(want[i]));
  });
}

TEST(Bands, EveryPixelAttendsToItsWholeImage) {
  const Tensor image = drawn({2, 9, 4, 8}, 11);
  const Pass pass = [](nn::Spatial& spatial, const Plane& x) {
    const Tensor tokens = x.data.reshape({x.data.elements() / 8, 8});
    return Plane{spatial.attend(x, tokens, tokens, tokens).reshape(x.data.shape()), x.height,
                 x.begin};
  };
  const auto want = on_one(image, pass);
  for (const int ranks : kRanks) EXPECT_EQ(on_ranks(ranks, image, pass), want) << ranks;
}

TEST(Bands, SendTheLinesThatFiltersReadAndNoMore) {
  const ops::ConvWeight wide = ops::pack_conv(drawn({4, 4, 5, 5}, 1), {}, DType::f32),
                        point = ops::pack_conv(drawn({4, 4, 1, 1}, 1), {}, DType::f32);
  comm::Ledger sent;
  on_ranks(
      3, drawn({1, 9, 6, 4}, 1),
      [&](nn::Spatial& spatial, const Plane& x) {
        return spatial.conv(
            point,
            spatial.conv(wide, x, {.pad_top = 2, .pad_bottom = 2, .pad_left = 2, .pad_right = 2}),
            {});
      },
      &sent);
  EXPECT_EQ(sent.entries().at({"halo", -1}).messages, 2);
  EXPECT_EQ(sent.entries().at({"halo", -1}).bytes, 2 * 2 * 6 * 4 * 4) << "two lines to either side";
  EXPECT_EQ(sent.entries().at({"image", -1}).bytes, 3 * 6 * 4 * 4);
}

TEST(Bands, StopWhenTheFirstRankIsAsked) {
  const ops::ConvWeight filter = ops::pack_conv(drawn({4, 4, 1, 1}, 1), {}, DType::f32);
  std::stop_source source;
  source.request_stop();
  const Tensor image = drawn({1, 6, 4, 4}, 1);
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    Bands bands(world, world.rank() == 0 ? source.get_token() : std::stop_token());
    try {
      bands.conv(filter, mine(bands, image), {});
      ADD_FAILURE() << "went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled);
    }
  });
}

TEST(Bands, EachRankHasALineAtLeast) {
  const auto said = [](const char* plan, int64_t lines) {
    const auto found = band_problems(parse_plan(plan), lines);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_EQ(said("ulysses=4,vae=4", 4), "");
  EXPECT_EQ(said("ulysses=4", 0), "");
  EXPECT_NE(said("ulysses=4,vae=4", 3).find("a latent has 3 lines"), std::string::npos);
  EXPECT_NE(said("ulysses=4,vae=4", 3).find("use vae=3 or less"), std::string::npos);
  EXPECT_NE(said("ulysses=4,vae=4", 0).find("leave out vae="), std::string::npos);
}

}  // namespace
}  // namespace tessera::parallel
