#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using golden::Scratch;
using load::SafetensorsFile;

const std::string kData = TESSERA_TEST_DATA "/moe/";

// Runs forward pass `n` of a golden case and returns its traced outputs.
SafetensorsFile run(const std::string& name, int n, Precision precision, const Scratch& scratch) {
  const SafetensorsFile io(kData + name + "/io.safetensors");
  const std::string prefix = "forward." + std::to_string(n) + ".";
  load::write_safetensors(
      scratch / "in.safetensors",
      {{"x", io.get(prefix + "x")}, {"t", io.get(prefix + "t")}, {"y", io.get(prefix + "y")}});
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  request.trace = true;
  Model::open(kData + name + "/model", golden::options(precision)).forward(request);
  return SafetensorsFile(scratch / "out.safetensors");
}

class DitMoeForward : public testing::TestWithParam<const char*> {};

TEST_P(DitMoeForward, EveryBlockIsTheReferencesInF32) {
  const SafetensorsFile io(kData + GetParam() + "/io.safetensors");
  for (int n = 0; n < 4; ++n) {
    const Scratch scratch;
    const SafetensorsFile out = run(GetParam(), n, Precision::f32, scratch);
    const std::string prefix = "forward." + std::to_string(n) + ".";
    const auto hidden = io.get(prefix + "hidden");
    EXPECT_LT(golden::max_error(out.get("embedding").to_floats(), golden::row(hidden, 0)), 1e-4);
    for (int64_t b = 0; b + 1 < hidden.size(0); ++b)
      EXPECT_LT(golden::max_error(out.get("block." + std::to_string(b)).to_floats(),
                                  golden::row(hidden, b + 1)),
                1e-4)
          << "block " << b << " of pass " << n;
    EXPECT_LT(golden::max_error(out.get("out").to_floats(), io.get(prefix + "out").to_floats()),
              1e-4);
  }
}

TEST_P(DitMoeForward, StaysCloseInBf16) {
  const SafetensorsFile io(kData + GetParam() + "/io.safetensors");
  for (int n = 0; n < 4; ++n) {
    const Scratch scratch;
    const SafetensorsFile out = run(GetParam(), n, Precision::bf16, scratch);
    EXPECT_LT(golden::l2_error(out.get("out").to_floats(),
                               io.get("forward." + std::to_string(n) + ".out").to_floats()),
              3e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DitMoeForward, testing::Values("dit_moe_flash", "dit_moe_timm"));

TEST(Forward, TensorsOfMemoryGiveWhatFilesGive) {
  const Scratch scratch;
  const SafetensorsFile file = run("dit_moe_flash", 1, Precision::f32, scratch);
  const SafetensorsFile in(scratch / "in.safetensors");
  std::map<std::string, tensor::Tensor> held;
  ForwardRequest request;
  for (const char* name : {"x", "t", "y"}) {
    const tensor::Tensor& x = held[name] = in.get(name).contiguous();
    request.tensors[name] = {
        static_cast<ElementType>(x.dtype()), {x.shape().begin(), x.shape().end()}, x.raw()};
  }
  request.trace = true;
  const Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::f32));
  const NamedTensors out = model.forward(request);
  EXPECT_EQ(out.size(), file.entries().size());
  for (const auto& [name, entry] : file.entries()) {
    const tensor::Tensor want = file.get(name);
    ASSERT_TRUE(out.contains(name)) << name;
    const TensorView got = out.at(name).view();
    EXPECT_EQ(got.shape, std::vector<int64_t>(want.shape().begin(), want.shape().end())) << name;
    EXPECT_EQ(std::memcmp(got.data, want.raw(), static_cast<size_t>(want.bytes())), 0) << name;
  }
  request.inputs = scratch / "in.safetensors";
  EXPECT_THROW(model.forward(request), Error) << "both a file and tensors";
}

TEST(Forward, SaysWhatIsMissing) {
  const Scratch scratch;
  load::write_safetensors(scratch / "in.safetensors",
                          {{"x", tensor::Tensor::zeros({1, 4, 8, 8}, tensor::DType::f32)}});
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::f32));
  try {
    model.forward(request);
    FAIL() << "ran without a timestep";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("no tensor 't'"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(std::filesystem::exists(request.outputs));
}

// Errors of inputs do not blame the weights, and a VAE's results are checked.
TEST(Forward, ValuesThatAreNoNumbersAreNamed) {
  const std::string folder = TESSERA_TEST_DATA "/diffusers/pixart_alpha/model/vae";
  const Scratch scratch;
  const auto said = [&](const std::string& model, const std::string& half, float value) {
    tensor::Tensor x =
        tensor::Tensor::zeros({1, half == "decode" ? 4 : 3, 16, 16}, tensor::DType::f32);
    x.data<float>()[7] = value;
    load::write_safetensors(scratch / "in.safetensors", {{"sample", x}});
    ForwardRequest request;
    request.component = choice_of<ModelPart>("vae." + half, "half");
    request.inputs = scratch / "in.safetensors";
    request.outputs = scratch / "out.safetensors";
    try {
      Model::open(model, golden::options(Precision::f32)).forward(request);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), std::isnan(value) ? ErrorCode::usage : ErrorCode::model);
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(said(folder, "decode", 1), "nothing");
  for (const char* half : {"decode", "encode"})
    EXPECT_NE(said(folder, half, NAN).find("the tensor 'sample' holds NaN"), std::string::npos);
  std::filesystem::copy(folder, scratch / "vae");
  const std::string weights = scratch / "vae/diffusion_pytorch_model.safetensors";
  std::map<std::string, tensor::Tensor> tensors;
  {
    const SafetensorsFile in(weights);
    for (const auto& [name, entry] : in.entries()) tensors[name] = in.get(name).contiguous();
  }
  for (const char* name : {"decoder.conv_out.bias", "encoder.conv_out.bias"})
    std::memset(tensors.at(name).raw(), 0xff, static_cast<size_t>(tensors.at(name).bytes()));
  load::write_safetensors(weights, tensors);
  for (const char* half : {"decode", "encode"})
    EXPECT_NE(said(scratch / "vae", half, 1)
                  .find("the VAE of the model gives values that are no numbers"),
              std::string::npos);
}

TEST(Forward, RunsBothHalvesOfAVae) {
  const std::string folder = TESSERA_TEST_DATA "/diffusers/pixart_alpha";
  const SafetensorsFile io(folder + "/io_vae.safetensors");
  Model model = Model::open(folder + "/model/vae", golden::options(Precision::f32));
  for (const std::string half : {"decode", "encode"}) {
    const Scratch scratch;
    load::write_safetensors(scratch / "in.safetensors", {{"sample", io.get(half + ".in")}});
    ForwardRequest request;
    request.component = choice_of<ModelPart>("vae." + half, "half");
    request.inputs = scratch / "in.safetensors";
    request.outputs = scratch / "out.safetensors";
    request.trace = true;
    model.forward(request);
    const SafetensorsFile out(request.outputs);
    EXPECT_LT(
        golden::max_error(out.get("out").to_floats(),
                          io.get(half == "decode" ? "decode.out" : "encode.mean").to_floats()),
        1e-4);
    EXPECT_TRUE(out.has("mid_block"));
  }
}

// Images and latents of the shipped model, whole and in tiles.
TEST(Forward, RunsBothHalvesOfAVaeInTiles) {
  const Scratch scratch;
  std::vector<float> pixels(3 * 128 * 192);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = std::sin(float(i % 192) / 23) * std::cos(float(i / 192 % 128) / 17);
  load::write_safetensors(
      scratch / "image.safetensors",
      {{"sample", tensor::Tensor::from(std::span<const float>(pixels), {1, 3, 128, 192})}});
  Model model = Model::open("scenes", golden::options(Precision::f32));
  const auto run = [&](ModelPart half, const char* in, int64_t tile) {
    ForwardRequest request;
    request.component = half;
    request.inputs = scratch / in;
    request.outputs = scratch / "out.safetensors";
    request.vae_tiling = tile == 0 ? VaeTiling::off : VaeTiling::on;
    request.vae_tile = tile;
    model.forward(request);
    return SafetensorsFile(request.outputs);
  };
  const auto whole = run(ModelPart::vae_encode, "image.safetensors", 0).get("mean");
  EXPECT_EQ(whole.shape(), (tensor::Shape{1, 4, 16, 24}));
  EXPECT_EQ(run(ModelPart::vae_encode, "image.safetensors", 192).get("mean").to_floats(),
            whole.to_floats());
  const SafetensorsFile tiled = run(ModelPart::vae_encode, "image.safetensors", 96);
  EXPECT_EQ(tiled.get("logvar").shape(), whole.shape());
  const double error = golden::l2_error(tiled.get("mean").to_floats(), whole.to_floats());
  EXPECT_GT(error, 0) << "tiles see less of the image";
  // Tiles of 96 pixels begin every 72: up to there the first tile is alone.
  const auto corner = [](const tensor::Tensor& x, int64_t end) {
    return x.slice(2, 0, end).slice(3, 0, end).contiguous();
  };
  const auto expect_alone = [&](ModelPart half, const char* from, const tensor::Tensor& whole_in,
                                const tensor::Tensor& all, int64_t in, int64_t out) {
    load::write_safetensors(scratch / "corner.safetensors", {{"sample", corner(whole_in, in)}});
    const tensor::Tensor alone = run(half, "corner.safetensors", 0).get(from);
    EXPECT_LT(golden::max_error(corner(all, out).to_floats(), corner(alone, out).to_floats()), 1e-6)
        << word_of(half);
  };
  const auto pixels_in = SafetensorsFile(scratch / "image.safetensors").get("sample");
  expect_alone(ModelPart::vae_encode, "mean", pixels_in, tiled.get("mean"), 96, 9);
  load::write_safetensors(scratch / "latent.safetensors", {{"sample", whole}});
  const auto decoded = run(ModelPart::vae_decode, "latent.safetensors", 96).get("out");
  EXPECT_EQ(decoded.shape(), (tensor::Shape{1, 3, 128, 192}));
  expect_alone(ModelPart::vae_decode, "out", whole, decoded, 12, 72);
  EXPECT_THROW(run(ModelPart::vae_decode, "latent.safetensors", 7), Error) << "no tile is so small";
}

// Inputs of a component of the PixArt of the tests, or of a T5.
std::map<std::string, tensor::Tensor> inputs_of(ModelPart part) {
  using tensor::DType;
  using tensor::Tensor;
  const auto zeros = [](tensor::Shape shape) { return Tensor::zeros(shape, DType::f32); };
  const int32_t ids[] = {1, 2, 3, 4};
  switch (part) {
    case ModelPart::vae_decode: return {{"z", zeros({1, 4, 24, 16})}};
    case ModelPart::vae_encode: return {{"x", zeros({2, 3, 96, 64})}};
    case ModelPart::text_encoder:
      return {{"input_ids", Tensor::from(std::span<const int32_t>(ids), {2, 2})}};
    default: {
      const SafetensorsFile io(TESSERA_TEST_DATA
                               "/diffusers/pixart_alpha/io_transformer.safetensors");
      std::map<std::string, Tensor> all;
      const std::string before = "fwd0.in.";
      for (const auto& [name, entry] : io.entries())
        if (name.starts_with(before)) all[name.substr(before.size())] = io.get(name);
      return all;
    }
  }
}

// Notes or refusal of a component's run within a budget.
std::string said_of(ForwardRequest request, int64_t budget) {
  RunOptions options = golden::options(Precision::f32);
  options.memory_budget = budget;
  std::string said;
  const auto take = [&](const std::string& note) { said += note; };
  try {
    const std::string folder =
        request.component == ModelPart::text_encoder ? "cogvideox_2b" : "pixart_alpha";
    Model::open(TESSERA_TEST_DATA "/diffusers/" + folder + "/model", options)
        .forward(request, {{}, {}, take});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory) << e.what();
    said = e.what();
  }
  return said;
}

TEST(Forward, WhatDoesNotFitIsRefusedAndWhatIsNamedFits) {
  for (const ModelPart part : {ModelPart::transformer, ModelPart::text_encoder,
                               ModelPart::vae_decode, ModelPart::vae_encode}) {
    const Scratch scratch;
    ForwardRequest request;
    request.component = part;
    request.inputs = scratch / "in.safetensors";
    load::write_safetensors(request.inputs, inputs_of(part));
    const std::string refused = said_of(request, 1000), before = "it fits into `memory_budget` ";
    const size_t at = refused.find(before);
    ASSERT_NE(at, std::string::npos) << refused;
    const int64_t named = std::llround(std::stod(refused.substr(at + before.size())) * 1e6);
    const std::string fits = said_of(request, named);
    EXPECT_EQ(fits.find("took "), std::string::npos) << fits;
    EXPECT_EQ(fits.find("would need"), std::string::npos) << fits;
    const std::string less = said_of(request, std::max<int64_t>(named - 150'000, 1000));
    EXPECT_NE(less.find("would need"), std::string::npos) << word_of(part) << less;
  }
  const Scratch scratch;
  ForwardRequest request;
  request.component = ModelPart::vae_decode;
  request.inputs = scratch / "in.safetensors";
  load::write_safetensors(request.inputs,
                          {{"z", tensor::Tensor::zeros({1, 4, 64, 64}, tensor::DType::f32)}});
  const std::string whole = said_of(request, 1000), before = "`memory_budget` ";
  const double need = std::stod(whole.substr(whole.rfind(before) + before.size())) * 1e6;
  const std::string refused = said_of(request, static_cast<int64_t>(0.7 * need));
  EXPECT_NE(refused.find("`vae_tiling` "), std::string::npos) << refused;
}

TEST(Forward, EndsAfterAStopRequest) {
  const SafetensorsFile io(kData + "dit_moe_flash/io.safetensors");
  const Scratch scratch;
  load::write_safetensors(
      scratch / "in.safetensors",
      {{"x", io.get("forward.0.x")}, {"t", io.get("forward.0.t")}, {"y", io.get("forward.0.y")}});
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  std::stop_source stop;
  stop.request_stop();
  Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::f32));
  try {
    model.forward(request, {stop.get_token(), {}});
    FAIL() << "ran to the end";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_FALSE(std::filesystem::exists(request.outputs));
}

// Tensors in memory are checked like tensors in files.
std::string refusal(const std::string& model, ModelPart component, TensorViews tensors,
                    VaeTiling tiling = VaeTiling::off) {
  ForwardRequest request;
  request.component = component;
  request.tensors = std::move(tensors);
  request.vae_tiling = tiling;
  try {
    Model::open(std::string(TESSERA_TEST_DATA "/diffusers/") + model + "/model",
                golden::options(Precision::f32))
        .forward(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "nothing was refused";
}

TEST(Forward, RefusesSamplesWithoutPixels) {
  const float one = 0;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 4, 0, 64}, {1, 4, 64, 0}, {0, 4, 8, 8}, {4}})
    for (const VaeTiling tiling : {VaeTiling::off, VaeTiling::on})
      for (const ModelPart half : {ModelPart::vae_decode, ModelPart::vae_encode})
        EXPECT_NE(
            refusal("pixart_alpha", half, {{"sample", {ElementType::f32, shape, &one}}}, tiling)
                .find("the sample is"),
            std::string::npos);
}

TEST(Forward, RefusesPositionsThatAreNone) {
  const std::vector<float> latent(64),
      places[] = {{0, NAN, 0}, {0, 0, -1}, {0, 4294967296.0f, 1}, {0, INFINITY, 0}};
  for (const std::vector<float>& ids : places)
    EXPECT_NE(refusal("flux_dev", ModelPart::transformer,
                      {{"hidden_states", {ElementType::f32, {1, 1, 64}, latent.data()}},
                       {"img_ids", {ElementType::f32, {1, 3}, ids.data()}}})
                  .find("'img_ids' holds"),
              std::string::npos);
}

}  // namespace
}  // namespace tessera
