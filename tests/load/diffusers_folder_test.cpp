#include "load/diffusers_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "scratch_folder.h"

namespace tessera::load {

TEST(DiffusersFolder, ReadsAPipeline) {
  const ScratchFolder folder;
  folder.write("model_index.json", R"({"_class_name":"FluxPipeline","_diffusers_version":"1",
    "transformer":["diffusers","FluxTransformer2DModel"],"scheduler":["diffusers","Euler"],
    "image_encoder":[null,null],"requires_safety_checker":false})");
  folder.write("transformer/config.json", R"({"in_channels":4})");
  folder.write("scheduler/scheduler_config.json", R"({"shift":3.0})");
  const ModelFolder model = open_folder(folder.path());
  EXPECT_EQ(model.kind, FolderKind::pipeline);
  EXPECT_EQ(model.class_name, "FluxPipeline");
  ASSERT_EQ(model.components.size(), 2u);
  EXPECT_EQ(model.component("transformer").config["in_channels"], 4);
  EXPECT_EQ(model.component("transformer").class_name, "FluxTransformer2DModel");
  EXPECT_EQ(model.component("transformer").folder, folder.path("transformer"));
  EXPECT_EQ(model.component("scheduler").config["shift"], 3.0);
  EXPECT_FALSE(model.has("image_encoder"));
  EXPECT_EQ(model.options["requires_safety_checker"], false);
  expect_says(model_error([&] { model.component("vae"); }), "'vae'; it has scheduler, transformer");
}

TEST(DiffusersFolder, ReadsASingleModelAndItsParts) {
  const ScratchFolder folder;
  folder.write("config.json", R"({"model_type":"dit_moe","depth":3})");
  folder.write("vae/config.json", R"({"_class_name":"AutoencoderKL"})");
  folder.write("notes/readme.txt", "no component");
  const ModelFolder model = open_folder(folder.path());
  EXPECT_EQ(model.kind, FolderKind::single);
  EXPECT_EQ(model.class_name, "dit_moe");
  ASSERT_EQ(model.components.size(), 2u);
  EXPECT_EQ(model.component("transformer").config["depth"], 3);
  EXPECT_EQ(model.component("vae").class_name, "AutoencoderKL");
}

TEST(DiffusersFolder, NamesTheOwnComponent) {
  const ScratchFolder folder;
  folder.write("config.json", R"({"model_type":"llada2_moe"})");
  EXPECT_TRUE(open_folder(folder.path()).has("model"));
  folder.write("config.json", R"({"_class_name":"AutoencoderKL"})");
  EXPECT_TRUE(open_folder(folder.path()).has("vae"));
  folder.write("config.json", R"({"_class_name":"SD3Transformer2DModel"})");
  EXPECT_TRUE(open_folder(folder.path()).has("transformer"));
}

TEST(DiffusersFolder, SaysWhatToDoWithAFile) {
  const ScratchFolder folder;
  for (const char* name : {"a.safetensors", "a.gguf", "a.ckpt", "a.pt", "a.txt"})
    folder.write(name, "x");
  auto error_of = [&](const std::string& name) {
    return model_error([&] { open_folder(folder.path(name)); });
  };
  expect_says(error_of("a.safetensors"), "and this as `transformer`");
  expect_says(error_of("a.gguf"), "a GGUF file; give the model's folder");
  expect_says(error_of("a.ckpt"), "convert");
  expect_says(error_of("a.pt"), "tools/convert_dit_moe.py");
  expect_says(error_of("a.txt"), "is a file; expected a model folder");
  expect_says(error_of("none"), "does not exist");
  expect_says(error_of(""), "neither model_index.json nor config.json");
  folder.write("config.json", "{}");
  expect_says(error_of("a.safetensors"), "give the folder that holds it");
  expect_says(model_error([] { open_folder(""); }), "does not exist");
}

// A pipe, a folder or a broken link in place of a description must not count as missing.
TEST(DiffusersFolder, WhatIsNoFileIsNotMissing) {
  const auto refused = [](const char* name, const char* says) {
    const ScratchFolder folder;
    folder.write("model_index.json", R"({"_class_name":"P","scheduler":["diffusers","Euler"],
      "transformer":["diffusers","FluxTransformer2DModel"]})");
    folder.write("transformer/config.json", "{}");
    folder.write("scheduler/scheduler_config.json", "{}");
    std::filesystem::remove_all(folder.path(name));
    ASSERT_EQ(mkfifo(folder.path(name).c_str(), 0600), 0);
    const std::string error = model_error([&] { open_folder(folder.path()); });
    expect_says(error, folder.path(name));
    expect_says(error, says);
  };
  for (const char* name :
       {"model_index.json", "transformer/config.json", "scheduler/scheduler_config.json"})
    refused(name, "it is a pipe; expected a regular file");
  refused("transformer", "is no folder; expected that of component 'transformer'");
  const ScratchFolder folder;
  folder.write("config.json/x", "");
  expect_says(model_error([&] { open_folder(folder.path()); }), "it is a folder");
  std::filesystem::remove_all(folder.path("config.json"));
  std::filesystem::create_symlink("nowhere", folder.path("config.json"));
  expect_says(model_error([&] { open_folder(folder.path()); }), "cannot open");
}

TEST(DiffusersFolder, RefusesBadIndexes) {
  const ScratchFolder folder;
  auto error_with = [&](const std::string& text) {
    folder.write("model_index.json", text);
    return model_error([&] { open_folder(folder.path()); });
  };
  expect_says(error_with("{"), "model_index.json");
  expect_says(error_with("[]"), "JSON object");
  expect_says(error_with("{}"), "_class_name");
  expect_says(error_with(R"({"_class_name":"P"})"), "no component");
  expect_says(error_with(R"({"_class_name":"P","vae":["diffusers"]})"), "'vae' is given as");
  expect_says(error_with(R"({"_class_name":"P","vae":["diffusers",null]})"), "[null, null]");
  expect_says(error_with(R"({"_class_name":"P","../vae":["a","b"]})"), "'../vae' is no plain name");
  expect_says(error_with(R"({"_class_name":"P","vae":["diffusers","AutoencoderKL"]})"),
              "none of the folders that it names is there, as 'vae'; download them too");
}

TEST(DiffusersFolder, AComponentThatIsNotThereIsAnErrorForThoseWhoNeedIt) {
  const ScratchFolder folder;
  folder.write("model_index.json", R"({"_class_name":"FluxPipeline",
    "transformer":["diffusers","FluxTransformer2DModel"],"vae":["diffusers","AutoencoderKL"],
    "safety_checker":["stable_diffusion","StableDiffusionSafetyChecker"]})");
  folder.write("transformer/config.json", "{}");
  const ModelFolder model = open_folder(folder.path());
  EXPECT_FALSE(model.has("vae"));
  EXPECT_EQ(model.absent.size(), 2u);
  EXPECT_EQ(model.absent.at("safety_checker"), "StableDiffusionSafetyChecker");
  expect_says(model_error([&] { model.component("vae", ", or go without"); }),
              "model_index.json: the folder of component 'vae' ('AutoencoderKL') is missing; "
              "expected '" +
                  folder.path("vae") + "': download it too, or go without");
}

// Without a config every key would have its default, for another image.
TEST(DiffusersFolder, APartWithoutItsConfigIsRefused) {
  const ScratchFolder folder;
  folder.write("model_index.json", R"({"_class_name":"StableDiffusion3Pipeline",
    "scheduler":["diffusers","FlowMatchEulerDiscreteScheduler"],"vae":["diffusers","AutoencoderKL"],
    "tokenizer":["transformers","CLIPTokenizer"],"feature_extractor":["transformers","X"]})");
  folder.write("tokenizer/vocab.json", "{}");
  folder.write("feature_extractor/x", "");
  folder.write("scheduler/readme", "");
  expect_says(model_error([&] { open_folder(folder.path()); }),
              "scheduler' holds no scheduler_config.json: download it too");
  folder.write("scheduler/scheduler_config.json", "{}");
  folder.write("vae/readme", "");
  expect_says(model_error([&] { open_folder(folder.path()); }),
              "vae' holds no config.json: download it too");
  folder.write("vae/config.json", "{}");
  EXPECT_TRUE(open_folder(folder.path()).has("tokenizer"));
}

TEST(DiffusersFolder, ATransformerAloneSaysWhereItBelongs) {
  const ScratchFolder folder;
  folder.write("transformer/config.json", "{}");
  expect_says(model_error([&] { open_folder(folder.path()); }),
              "holds a transformer, and no model_index.json: put the folder 'transformer' in the");
}

TEST(DiffusersFolder, AFolderOfWeightsAloneSaysWhatItHolds) {
  for (const char* name : {"sd3_medium.safetensors", "flux1-dev-Q4_0.gguf", "model.ckpt"}) {
    const ScratchFolder folder;
    folder.write(name, "x");
    expect_says(model_error([&] { open_folder(folder.path()); }),
                "a weights file alone, as '" + std::string(name) + "', is not enough");
  }
}

TEST(DiffusersFolder, RefusesAConfigThatNamesNoModel) {
  const ScratchFolder folder;
  folder.write("config.json", "{}");
  expect_says(model_error([&] { open_folder(folder.path()); }), "model_type");
  folder.write("config.json", "7");
  expect_says(model_error([&] { open_folder(folder.path()); }), "JSON object");
}

}  // namespace tessera::load
