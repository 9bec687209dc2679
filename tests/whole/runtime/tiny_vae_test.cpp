#include "load/tiny_vae.h"

#include <cmath>

#include "base/json.h"
#include "load/safetensors.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using tensor::Tensor;

const std::string kFlux = TESSERA_TEST_DATA "/diffusers/flux_dev/model";
const std::string kImages = TESSERA_TEST_DATA "/features/image/";

Tensor wave(const tensor::Shape& shape, int seed) {
  const Tensor x = Tensor::empty(shape, tensor::DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] =
        static_cast<float>(0.12 * std::sin(0.37 * double(i + 1) + 0.11 * double(seed)));
  return x;
}

// The tensors of an AutoencoderTiny of 8 channels with the published depth, by diffusers' names.
std::map<std::string, Tensor> tiny_vae(int64_t latent) {
  constexpr int64_t kWidth = 8;
  std::map<std::string, Tensor> all;
  int seed = 0;
  const auto add = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    all[name + ".weight"] = wave({out, in, 3, 3}, ++seed);
    if (bias) all[name + ".bias"] = wave({out}, ++seed);
  };
  const auto half = [&](const std::string& name, const std::vector<int>& blocks, bool decoder) {
    int layer = 0;
    const auto next = [&] { return name + ".layers." + std::to_string(layer++); };
    if (decoder) add(next(), kWidth, latent, true), ++layer;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const bool last = b + 1 == blocks.size();
      if (!decoder) add(next(), kWidth, b == 0 ? 3 : kWidth, b == 0);
      for (int i = 0; i < blocks[b]; ++i) {
        const std::string block = next();
        for (int c : {0, 2, 4}) add(block + ".conv." + std::to_string(c), kWidth, kWidth, true);
      }
      if (decoder && !last) ++layer;
      if (decoder) add(next(), last ? 3 : kWidth, kWidth, last);
    }
    if (!decoder) add(next(), latent, kWidth, true);
  };
  half("encoder", {1, 3, 3, 3}, false);
  half("decoder", {3, 3, 3, 1}, true);
  return all;
}

// Returns the decoder by the maker's names: layers without a prefix, numbers greater by 1.
std::map<std::string, Tensor> decoder_of_maker(const std::map<std::string, Tensor>& vae) {
  constexpr std::string_view kPrefix = "decoder.layers.";
  std::map<std::string, Tensor> all;
  for (const auto& [name, x] : vae) {
    if (!name.starts_with(kPrefix)) continue;
    const size_t dot = name.find('.', kPrefix.size());
    const int layer = std::stoi(name.substr(kPrefix.size(), dot - kPrefix.size()));
    all[std::to_string(layer + 1) + name.substr(dot)] = x;
  }
  return all;
}

struct TinyVaes {
  golden::Scratch scratch;
  std::string folder = scratch / "taef1", file = scratch / "taef1_decoder.safetensors";

  explicit TinyVaes(int64_t latent) {
    fs::create_directories(folder);
    const auto vae = tiny_vae(latent);
    load::write_safetensors(folder + "/diffusion_pytorch_model.safetensors", vae);
    load::write_safetensors(file, decoder_of_maker(vae));
    const base::Json config{{"_class_name", load::kTinyVae},
                            {"latent_channels", latent},
                            {"encoder_block_out_channels", {8, 8, 8, 8}},
                            {"decoder_block_out_channels", {8, 8, 8, 8}}};
    std::ofstream(folder + "/config.json") << config.dump();
  }
};

GenerateRequest request() {
  GenerateRequest q;
  q.embeddings = kImages + "text_flux_dev.safetensors";
  q.width = 64, q.height = 32;
  q.steps = 2;
  return q;
}

GenerateResult run(const WeightFiles& files, const GenerateRequest& q,
                   const RunControl& control = {}) {
  return Model::open(kFlux, golden::options(Precision::f32), {}, files).generate(q, control);
}

TEST(TinyVae, FoldersAndMakersFilesDecodeAlike) {
  const TinyVaes tiny(16);
  const Image own = run({}, request()).images.at(0);
  const Image by_folder = run({.vae = tiny.folder}, request()).images.at(0);
  const Image by_file = run({.vae = tiny.file}, request()).images.at(0);
  EXPECT_EQ(by_folder.width, 64);
  EXPECT_EQ(by_folder.height, 32);
  EXPECT_EQ(by_folder.rgb, by_file.rgb);
  EXPECT_NE(by_folder.rgb, own.rgb);
}

TEST(TinyVae, ImagesAreEncodedByTheFolder) {
  const TinyVaes tiny(16);
  GenerateRequest q = request();
  q.images = {{.file = kImages + "image.png"}};
  q.strength = 0.5;
  EXPECT_EQ(run({.vae = tiny.folder}, q).images.size(), 1u);
  EXPECT_THROW(run({.vae = tiny.file}, q), Error) << "which holds the decoder alone";
}

TEST(TinyVae, PreviewsAreItsAndResultsAreNot) {
  const TinyVaes tiny(16);
  GenerateRequest q = request();
  q.previews = true;
  Image last;
  RunControl control;
  control.on_progress = [&](const Progress& p) {
    if (p.preview && p.step == p.steps) last = p.preview().at(0);
  };
  const Image result = run({.preview_vae = tiny.file}, q, control).images.at(0);
  EXPECT_EQ(result.rgb, run({}, request()).images.at(0).rgb);
  EXPECT_EQ(last.rgb, run({.vae = tiny.folder}, request()).images.at(0).rgb);
}

TEST(TinyVae, OtherLatentsAreRefusedBeforeTheRun) {
  const TinyVaes tiny(4);
  int steps = 0;
  RunControl control;
  control.on_progress = [&](const Progress& p) { steps += p.phase == Phase::denoise ? 1 : 0; };
  EXPECT_THROW(run({.vae = tiny.folder}, request(), control), Error);
  EXPECT_EQ(steps, 0);
}

}  // namespace
}  // namespace tessera
