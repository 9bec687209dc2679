#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <stdexcept>

#include "load/diffusers_folder.h"
#include "load/meta_weights.h"
#include "load/quantisation.h"
#include "load/weight_store.h"
#include "models/vae/autoencoder_kl.h"
#include "nn/local_spatial.h"
#include "nn/token_layout.h"
#include "tensor/scope.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

// A reference case: <folder>/vae and <folder>/io_vae.safetensors.
struct Case {
  std::string folder, vae;
  models::AutoencoderKLConfig config;
  load::TensorSet tensors;
  load::SafetensorsFile io;

  static models::AutoencoderKLConfig config_of(const base::Json& json, const std::string& part) {
    return json["_class_name"] == "AutoencoderKLFlux2"
               ? models::parse_flux2_vae_config(json, part)
               : models::parse_autoencoder_kl_config(json, part);
  }
  Case(const std::string& at, const std::string& part)
      : folder(at),
        vae(part),
        config(config_of(base::read_json(part + "/config.json"), part)),
        tensors(load::open_component(part)),
        io(at + "/io_vae.safetensors") {}
};

// The cases of the test data, and those of a reference folder from the environment.
std::vector<Case> cases() {
  std::vector<Case> found;
  for (const std::string& folder : golden::diffusers_cases("io_vae.safetensors", 3))
    if (const base::Json config = base::read_json(folder + "/model/vae/config.json");
        config["_class_name"] == "AutoencoderKL" || config["_class_name"] == "AutoencoderKLFlux2")
      found.emplace_back(folder, folder + "/model/vae");
  if (found.size() < 2) throw std::runtime_error("fewer than two VAEs of images");
  return found;
}

struct Bound {
  DType dtype;
  double limit;
  bool int8_filters = false;

  std::shared_ptr<const nn::Weights> weights(const load::TensorSet& tensors) const {
    auto stored = load::WeightStore().open(tensors);
    return int8_filters ? load::with_int8_filters(std::move(stored), 1) : stored;
  }
  double error(const Tensor& got, const Tensor& want) const {
    return dtype == DType::f32 ? golden::max_error(got.to_floats(), want.to_floats())
                               : golden::l2_error(got.to_floats(), want.to_floats());
  }
};
constexpr Bound kBounds[] = {{DType::f32, 1e-4}, {DType::bf16, 3e-2}, {DType::bf16, 5e-2, true}};

TEST(VaeGolden, DecodesAsDiffusersBlockByBlock) {
  for (const Case& c : cases())
    for (const Bound& bound : kBounds) {
      SCOPED_TRACE(c.folder + " " + tensor::name_of(bound.dtype));
      const models::AutoencoderKL vae(c.config, *bound.weights(c.tensors), bound.dtype);
      nn::LocalSpatial spatial;
      int blocks = 0;
      const Tensor out = vae.decode(
          c.io.get("decode.in"), spatial, {.trace = [&](const std::string& name, const Tensor& x) {
            ++blocks;
            EXPECT_LT(bound.error(x, c.io.get("decode." + name)), bound.limit) << name;
          }});
      EXPECT_EQ(blocks, 6);
      EXPECT_EQ(out.shape(), c.io.get("decode.out").shape());
      EXPECT_LT(bound.error(out, c.io.get("decode.out")), bound.limit);
      const Tensor two = vae.decode(c.io.get("decode_batch2.in"), spatial);
      EXPECT_LT(bound.error(two, c.io.get("decode_batch2.out")), bound.limit);
    }
}

TEST(VaeGolden, EncodesAsDiffusersBlockByBlock) {
  for (const Case& c : cases())
    for (const Bound& bound : kBounds) {
      SCOPED_TRACE(c.folder + " " + tensor::name_of(bound.dtype));
      const models::AutoencoderKLEncoder vae(c.config, *load::WeightStore().open(c.tensors),
                                             bound.dtype);
      nn::LocalSpatial spatial;
      int blocks = 0;
      const auto moments = vae.encode(
          c.io.get("encode.in"), spatial, {.trace = [&](const std::string& name, const Tensor& x) {
            ++blocks;
            EXPECT_LT(bound.error(x, c.io.get("encode." + name)), bound.limit) << name;
          }});
      EXPECT_EQ(blocks, 6);
      EXPECT_LT(bound.error(moments.mean, c.io.get("encode.mean")), bound.limit);
      EXPECT_LT(bound.error(moments.logvar, c.io.get("encode.logvar")), bound.limit);
    }
}

TEST(VaeGolden, TilesStandAtTheirPlaces) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.folder);
    const models::AutoencoderKL vae(c.config, *load::WeightStore().open(c.tensors), DType::f32);
    nn::LocalSpatial spatial;
    const Tensor latents = c.io.get("decode.in"), whole = c.io.get("decode.out");
    const auto decode = [&](const Tensor& z) { return vae.decode(z, spatial); };
    const Tensor one = models::decode_tiles(latents, 8, models::tiling_of(c.config, 4096), decode);
    EXPECT_EQ(one.to_floats(), decode(latents).to_floats());
    const models::TileSide side{2, 1};
    const Tensor tiled = models::decode_tiles(latents, 8, {side, side}, decode);
    EXPECT_EQ(tiled.shape(), whole.shape());
    // Only the neighbours' last lines overlap the corner of the first tile.
    const auto corner = [](const Tensor& x) {
      return x.slice(2, 0, 8).slice(3, 0, 8).contiguous().to_floats();
    };
    EXPECT_EQ(corner(tiled), corner(decode(latents.slice(2, 0, 2).slice(3, 0, 2).contiguous())));
  }
}

TEST(VaeGolden, AsksForEveryTensorOfTheFolderAndNoOther) {
  for (const Case& c : cases()) {
    const load::MetaWeights asked(c.tensors);
    const models::AutoencoderKL decoder(c.config, asked, DType::bf16);
    const models::AutoencoderKLEncoder encoder(c.config, asked, DType::bf16);
    const std::string counter[] = {"bn.num_batches_tracked"};  // used only in training
    EXPECT_EQ(load::check_names(asked, c.tensors, c.folder, counter), "");
  }
}

TEST(VaeGolden, LatentsOfFlux2AreNormalisedByChannelAndPlaceInAPatch) {
  int compared = 0;
  for (const Case& c : cases()) {
    if (!c.io.has("latents.packed")) continue;
    const models::AutoencoderKL vae(c.config, *load::WeightStore().open(c.tensors), DType::f32);
    const Tensor packed = c.io.get("latents.packed"), want = c.io.get("latents.unpacked");
    const nn::TokenLayout layout{
        .channels = want.size(1), .size = {1, want.size(2), want.size(3)}, .patch = {1, 2, 2}};
    const Tensor tokens = packed.reshape({packed.size(1), packed.size(2)});
    const Tensor made = vae.unscale(nn::from_tokens(tokens, layout, false));
    EXPECT_LT(golden::max_error(made.to_floats(), want.to_floats()), 1e-5) << c.folder;
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

}  // namespace
}  // namespace tessera
