#include <algorithm>
#include <stdexcept>

#include "load/meta_weights.h"
#include "load/quantisation.h"
#include "load/weight_store.h"
#include "models/vae/cogvideox_vae.h"
#include "nn/local_spatial.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  std::string folder;
  models::CogVideoXVaeConfig config;
  load::TensorSet tensors;
  load::SafetensorsFile io;

  explicit Case(const std::string& at)
      : folder(at),
        config(
            models::parse_cogvideox_vae_config(base::read_json(at + "/model/vae/config.json"), at)),
        tensors(load::open_component(at + "/model/vae")),
        io(at + "/io_vae.safetensors") {}
};

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const std::string& folder : golden::diffusers_cases("io_vae.safetensors", 3))
    if (base::read_json(folder + "/model/vae/config.json")["_class_name"] ==
        "AutoencoderKLCogVideoX")
      found.emplace_back(folder);
  if (found.empty()) throw std::runtime_error("no VAE of videos");
  return found;
}

double error(DType dtype, const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  return dtype == DType::f32 ? golden::max_error(got.to_floats(), want.to_floats())
                             : golden::l2_error(got.to_floats(), want.to_floats());
}

TEST(VideoVaeGolden, DecodesAsDiffusersWithAnyNumberOfFrames) {
  for (const Case& c : cases())
    for (const auto& [dtype, limit] :
         {std::pair{DType::f32, 1e-4}, {DType::bf16, 3e-2}, {DType::i8, 5e-2}}) {
      nn::LocalSpatial spatial;
      auto weights = load::WeightStore().open(c.tensors);
      if (dtype == DType::i8) weights = load::with_int8_filters(std::move(weights), 1);
      const models::CogVideoXVae vae(c.config, *weights, dtype == DType::f32 ? dtype : DType::bf16);
      int runs = 0;
      for (const char* run : {"decode1", "decode3", "decode4", "decode5", "decode_batch2"}) {
        if (!c.io.has(std::string(run) + ".in")) continue;  // the tests travel with a part of them
        EXPECT_LT(error(dtype, vae.decode(c.io.get(std::string(run) + ".in"), spatial),
                        c.io.get(std::string(run) + ".out")),
                  limit)
            << c.folder << " " << run;
        ++runs;
      }
      EXPECT_GE(runs, 2);
    }
}

// Tiles of 2 latent pixels in order: pixels outside of seams equal the tile decoded alone, and the
// 8 pixels of a seam blend both tiles in eighths.
TEST(VideoVaeGolden, TilesStandAtTheirPlacesAndBlend) {
  for (const Case& c : cases()) {
    nn::LocalSpatial spatial;
    const models::CogVideoXVae vae(c.config, *load::WeightStore().open(c.tensors), DType::f32);
    const auto decode = [&](const Tensor& z) { return vae.decode(z, spatial); };
    int runs = 0;
    for (const std::string run : {"decode1", "decode3"}) {
      if (!c.io.has(run + ".in")) continue;
      const Tensor latents = c.io.get(run + ".in"), whole = c.io.get(run + ".out");
      const Tensor one = models::decode_tiles(latents, 8, models::tiling_of(c.config), decode);
      EXPECT_LT(error(DType::f32, one, whole), 1e-4);
      const Tensor tiled = models::decode_tiles(latents, 8, {{2, 1}, {2, 1}}, decode);
      EXPECT_EQ(tiled.shape(), whole.shape());
      const auto tile = [&](int64_t x) { return decode(latents.slice(4, x, x + 2).contiguous()); };
      const Tensor first = tile(0), second = tile(1);
      const auto line = [](const Tensor& x, int64_t column) {
        return x.slice(3, 0, 8).slice(4, column, column + 1).contiguous().to_floats();
      };
      ASSERT_EQ(latents.size(4), 3) << "more than a tile";
      for (int64_t x = 0; x < 8; ++x) EXPECT_EQ(line(tiled, x), line(first, x)) << x;
      for (int64_t x = 0; x < 8; ++x) {
        const auto a = line(first, 8 + x), b = line(second, x), got = line(tiled, 8 + x);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], a[i] * (1 - float(x) / 8) + b[i] * float(x) / 8, 1e-5) << x;
      }
      ++runs;
    }
    EXPECT_GE(runs, 1);
  }
}

TEST(VideoVaeGolden, EncodesAsDiffusers) {
  for (const Case& c : cases())
    for (const auto& [dtype, limit] : {std::pair{DType::f32, 1e-4}, {DType::bf16, 3e-2}}) {
      nn::LocalSpatial spatial;
      const models::CogVideoXVaeEncoder vae(c.config, *load::WeightStore().open(c.tensors), dtype);
      int runs = 0;
      for (const std::string run : {"encode1", "encode9", "encode17"}) {
        if (!c.io.has(run + ".in")) continue;
        const auto moments = vae.encode(c.io.get(run + ".in"), spatial);
        EXPECT_LT(error(dtype, moments.mean, c.io.get(run + ".mean")), limit) << c.folder << run;
        EXPECT_LT(error(dtype, moments.logvar, c.io.get(run + ".logvar")), limit)
            << c.folder << run;
        ++runs;
      }
      EXPECT_GE(runs, 1);
    }
}

TEST(VideoVaeGolden, AsksForEveryTensorOfTheFolderAndNoOther) {
  for (const Case& c : cases()) {
    const load::MetaWeights asked(c.tensors);
    const models::CogVideoXVae decoder(c.config, asked, DType::bf16);
    const models::CogVideoXVaeEncoder encoder(c.config, asked, DType::bf16);
    EXPECT_EQ(load::check_names(asked, c.tensors, c.folder), "");
  }
}

}  // namespace
}  // namespace tessera
