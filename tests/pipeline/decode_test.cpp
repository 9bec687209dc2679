#include "pipeline/decode.h"

#include <cmath>

#include "engine/golden.h"

namespace tessera {
namespace {

TEST(Decode, AnImageOfEachLatentWithItsLabel) {
  Model model = Model::open("shapes", golden::options(Precision::f32));
  GenerateRequest request;
  request.classes = {"1", "2"};
  request.steps = 1;
  int last = -1;
  const GenerateResult result =
      model.generate(request, {.stop = {}, .on_progress = [&](const Progress& p) {
                                 if (p.phase == Phase::decode) last = p.step;
                               }});
  ASSERT_EQ(result.images.size(), 2u);
  EXPECT_NE(result.images[0].label, result.images[1].label);
  EXPECT_EQ(result.images[0].video, -1);
  EXPECT_EQ(last, 2);
  EXPECT_EQ(result.steps, 1);
}

double psnr(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
  return 10 * std::log10(255.0 * 255.0 * double(a.size()) / std::max(sum, 1e-9));
}

TEST(Decode, TilesKeepTheImage) {
  GenerateRequest request;
  request.classes = {"1", "7"};
  request.steps = 6;
  const RunOptions options = golden::options(Precision::bf16);
  const auto whole = Model::open("shapes", options).generate(request);
  request.vae_tiling = VaeTiling::on;
  request.vae_tile = 96;
  const auto tiled = Model::open("shapes", options).generate(request);
  EXPECT_EQ(tiled.latents, whole.latents);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(tiled.images[i].width, whole.images[i].width);
    EXPECT_GT(psnr(tiled.images[i].rgb, whole.images[i].rgb), 18);
  }
}

TEST(Decode, AVideoIsItsFrames) {
  const std::string folder = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";
  if (!std::filesystem::exists(folder + "/model_index.json")) FAIL() << folder << " is not whole";
  const golden::Scratch scratch;
  load::write_safetensors(
      scratch / "text.safetensors",
      {{"prompt_embeds", tensor::Tensor::zeros({1, 226, 32}, tensor::DType::f32)}});
  GenerateRequest request;
  request.embeddings = scratch / "text.safetensors";
  request.steps = 1;
  request.guidance = 1;
  request.width = request.height = 32;
  request.frames = 9;
  request.count = 2;
  const auto result = Model::open(folder, golden::options(Precision::bf16)).generate(request);
  ASSERT_EQ(result.images.size(), 18u);
  EXPECT_EQ(result.images[10].video, 1);
  EXPECT_EQ(result.images[10].frame, 1);
  EXPECT_EQ(result.images[10].width, 32);
}

}  // namespace
}  // namespace tessera
