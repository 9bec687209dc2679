#include "engine/diffusers_golden.h"
#include "load/meta_weights.h"
#include "load/weight_store.h"
#include "models/vae/cogvideox_vae.h"

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
  for (const std::string& folder : golden::diffusers_cases("io_vae.safetensors"))
    if (base::read_json(folder + "/model/vae/config.json")["_class_name"] ==
        "AutoencoderKLCogVideoX")
      found.emplace_back(folder);
  return found;
}

double error(DType dtype, const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  return dtype == DType::f32 ? golden::max_error(got.to_floats(), want.to_floats())
                             : golden::l2_error(got.to_floats(), want.to_floats());
}

TEST(VideoVaeGolden, DecodesAsDiffusersWithAnyNumberOfFrames) {
  EXPECT_GE(cases().size(), 1u);
  for (const Case& c : cases())
    for (const auto& [dtype, limit] : {std::pair{DType::f32, 1e-4}, {DType::bf16, 3e-2}}) {
      const models::CogVideoXVae vae(c.config, *load::WeightStore().open(c.tensors), dtype);
      for (const char* run : {"decode1", "decode3", "decode4", "decode5", "decode_batch2"}) {
        if (!c.io.has(std::string(run) + ".in")) continue;  // the tests travel with a part of them
        EXPECT_LT(error(dtype, vae.decode(c.io.get(std::string(run) + ".in")),
                        c.io.get(std::string(run) + ".out")),
                  limit)
            << c.folder << " " << run;
      }
    }
}

TEST(VideoVaeGolden, TilesAreNearTheWhole) {
  for (const Case& c : cases()) {
    const models::CogVideoXVae vae(c.config, *load::WeightStore().open(c.tensors), DType::f32);
    const auto decode = [&](const Tensor& z) { return vae.decode(z); };
    for (const std::string run : {"decode1", "decode3"}) {
      if (!c.io.has(run + ".in")) continue;
      const Tensor latents = c.io.get(run + ".in"), whole = c.io.get(run + ".out");
      const Tensor one = models::decode_tiles(latents, 8, models::tiling_of(c.config), decode);
      EXPECT_LT(error(DType::f32, one, whole), 1e-4);
      const Tensor tiled = models::decode_tiles(latents, 8, {{3, 2}, {3, 2}}, decode);
      EXPECT_LT(error(DType::bf16, tiled, whole), 0.5) << c.folder << " " << run;
    }
  }
}

TEST(VideoVaeGolden, EncodesAsDiffusers) {
  for (const Case& c : cases())
    for (const auto& [dtype, limit] : {std::pair{DType::f32, 1e-4}, {DType::bf16, 3e-2}}) {
      const models::CogVideoXVaeEncoder vae(c.config, *load::WeightStore().open(c.tensors), dtype);
      for (const std::string run : {"encode1", "encode9", "encode17"}) {
        if (!c.io.has(run + ".in")) continue;
        const auto moments = vae.encode(c.io.get(run + ".in"));
        EXPECT_LT(error(dtype, moments.mean, c.io.get(run + ".mean")), limit) << c.folder << run;
        EXPECT_LT(error(dtype, moments.logvar, c.io.get(run + ".logvar")), limit)
            << c.folder << run;
      }
    }
}

TEST(VideoVaeGolden, AsksForEveryTensorOfTheFolderAndNoOther) {
  for (const Case& c : cases()) {
    const load::MetaWeights asked(c.tensors);
    const models::CogVideoXVae decoder(c.config, asked, DType::bf16);
    const models::CogVideoXVaeEncoder encoder(c.config, asked, DType::bf16);
    load::check_names(asked, c.tensors, c.folder);
  }
}

}  // namespace
}  // namespace tessera
