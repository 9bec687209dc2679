#include <gtest/gtest.h>

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using golden::Scratch;

/// A run of the shipped model on the golden run's noise.
struct Made {
  std::vector<float> latents, image;
};

Made run(Precision precision) {
  const Scratch scratch;
  const load::SafetensorsFile golden(TESSERA_TEST_DATA "/shapes/run.safetensors");
  load::write_safetensors(scratch / "start.safetensors", {{"latents", golden.get("start")}});
  Model model = Model::open(TESSERA_MODELS_DIR "/shapes", golden::options(precision));
  GenerateRequest request;
  for (int64_t label : golden.get("y").to_ints()) request.classes.push_back(std::to_string(label));
  request.initial_latents = scratch / "start.safetensors";
  request.trace = scratch / "trace.safetensors";
  const GenerateResult result = model.generate(request);
  return {result.latents, load::SafetensorsFile(request.trace).get("image").to_floats()};
}

double psnr(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  for (size_t i = 0; i < b.size(); ++i)
    error += (a.at(i) - b[i]) * double(a[i] - b[i]) / double(b.size());
  return -10 * std::log10(error + 1e-12);
}

TEST(Shapes, TheShippedModelIsWhatPyTorchTrained) {
  const load::SafetensorsFile golden(TESSERA_TEST_DATA "/shapes/run.safetensors");
  const Made f32 = run(Precision::f32);
  EXPECT_LT(golden::max_error(f32.latents, golden.get("latents").to_floats()), 1e-3);
  std::vector<float> image = golden.get("image").to_floats();
  for (float& byte : image) byte /= 255;
  EXPECT_LT(golden::max_error(f32.image, image), 4e-3) << "stored as bytes";
  const Made bf16 = run(Precision::bf16);
  EXPECT_GT(psnr(bf16.image, f32.image), 35) << "dB";
}

TEST(Shapes, ClassesGoByName) {
  RunOptions options = golden::options(Precision::bf16);
  Model model = Model::open(TESSERA_MODELS_DIR "/shapes", options);
  GenerateRequest request;
  request.steps = 1;
  request.classes = {"red circle", "0"};
  const GenerateResult result = model.generate(request);
  ASSERT_EQ(result.images.size(), 2u);
  EXPECT_EQ(result.images[0].label, "red circle");
  EXPECT_EQ(result.images[1].label, "red circle");
  EXPECT_EQ(result.images[0].width, 128);
}

}  // namespace
}  // namespace tessera
