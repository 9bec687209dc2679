#include "load/weights_file.h"

#include <gtest/gtest.h>

#include "gguf_image.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::Tensor;

Tensor ones(std::initializer_list<int64_t> sizes) {
  const tensor::Shape shape(sizes);
  return Tensor::from(std::span<const float>(std::vector<float>(size_t(shape.elements()), 1.0f)),
                      shape);
}

const char* const kT5 = "encoder.block.0.layer.0.SelfAttention.q.weight";
const char* const kClip = "text_model.encoder.layers.0.self_attn.q_proj.weight";
const char* const kClipTable = "text_model.embeddings.token_embedding.weight";

// A pipeline of two CLIPs, 4 and 8 wide, and a T5, without a transformer.
void write_pipeline(const ScratchFolder& folder) {
  folder.write("model_index.json", R"({"_class_name": "StableDiffusion3Pipeline",
      "transformer": ["diffusers", "SD3Transformer2DModel"], "vae": ["diffusers", "AutoencoderKL"],
      "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
      "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
      "text_encoder_3": ["transformers", "T5EncoderModel"]})");
  folder.write("vae/config.json", R"({"_class_name": "AutoencoderKL"})");
  folder.write("text_encoder/config.json", R"({"hidden_size": 4})");
  folder.write("text_encoder_2/config.json", R"({"hidden_size": 8})");
  folder.write("text_encoder_3/config.json", R"({"d_model": 4})");
}

ModelFolder with(const ScratchFolder& folder, const WeightFiles& files) {
  ModelFolder model = open_folder(folder.path(), files);
  take_files(files, model);
  return model;
}

std::string usage_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(WeightsFile, TextEncodersAreToldByTensorsAndWidth) {
  const ScratchFolder folder;
  write_pipeline(folder);
  write_safetensors(folder.path("l"), {{kClip, ones({4, 4})}, {kClipTable, ones({9, 4})}});
  write_safetensors(folder.path("g"), {{kClip, ones({8, 8})}, {kClipTable, ones({9, 8})}});
  folder.write(
      "t5.gguf",
      GgufImage().architecture("t5encoder").floats("enc.blk.0.attn_q.weight", {1, 1}, {3}).bytes());
  const ModelFolder model =
      with(folder, {.text_encoders = {folder.path("g"), folder.path("t5.gguf"), folder.path("l")}});
  EXPECT_EQ(model.component("text_encoder").file, folder.path("l"));
  EXPECT_EQ(model.component("text_encoder_2").file, folder.path("g"));
  EXPECT_EQ(model.component("text_encoder_3").file, folder.path("t5.gguf"));
  EXPECT_TRUE(has_weights(model.component("text_encoder_3")));
  EXPECT_EQ(open_weights(model.component("text_encoder_3")).get(kT5).to_floats(),
            (std::vector<float>{3}));
}

TEST(WeightsFile, SaysWhichTextEncodersThereAre) {
  const ScratchFolder folder;
  write_pipeline(folder);
  write_safetensors(folder.path("other"), {{"a", ones({1})}});
  write_safetensors(folder.path("clip"), {{kClip, ones({4, 4})}});
  expect_says(usage_error([&] { with(folder, {.text_encoders = {folder.path("other")}}); }),
              "text_encoder (CLIPTextModelWithProjection), text_encoder_2");
  const std::string both =
      usage_error([&] { with(folder, {.text_encoders = {folder.path("clip")}}); });
  expect_says(both, "holds none of");
  const ModelFolder named =
      with(folder, {.text_encoders = {"text_encoder_2=" + folder.path("clip")}});
  EXPECT_EQ(named.component("text_encoder_2").file, folder.path("clip"));
  expect_says(usage_error([&] {
                with(folder, {.text_encoders = {"text_encoder_9=" + folder.path("clip")}});
              }),
              "describes no text_encoder_9");
  expect_says(model_error([&] { with(folder, {.text_encoders = {folder.path("none")}}); }), "none");
}

TEST(WeightsFile, AWholeCheckpointServesEachPart) {
  const ScratchFolder folder;
  write_pipeline(folder);
  const std::string l = "text_encoders.clip_l.transformer.",
                    t5 = "text_encoders.t5xxl.transformer.";
  write_safetensors(folder.path("all"), {{"model.diffusion_model.x_embedder.proj.bias", ones({2})},
                                         {"first_stage_model.decoder.norm_out.bias", ones({3})},
                                         {l + kClip, ones({4, 4})},
                                         {l + kClipTable, ones({9, 4})},
                                         {t5 + kT5, ones({4, 4})}});
  folder.write("transformer/config.json", R"({"_class_name": "SD3Transformer2DModel"})");
  const std::string all = folder.path("all");
  const ModelFolder model =
      with(folder, {.transformer = all,
                    .text_encoders = {"text_encoder=" + all, "text_encoder_3=" + all},
                    .vae = all});
  EXPECT_EQ(open_weights(model.component("transformer")).names(),
            std::vector<std::string>{"pos_embed.proj.bias"});
  EXPECT_EQ(open_weights(model.component("vae")).names(),
            std::vector<std::string>{"decoder.conv_norm_out.bias"});
  EXPECT_TRUE(open_weights(model.component("text_encoder")).has(kClip));
  EXPECT_EQ(open_weights(model.component("text_encoder_3")).names(), std::vector<std::string>{kT5});
}

TEST(WeightsFile, AFileOfAnotherFamilyIsRefusedByBothNames) {
  const ScratchFolder folder;
  write_pipeline(folder);
  folder.write("transformer/config.json", R"({"_class_name": "SD3Transformer2DModel"})");
  write_safetensors(folder.path("flux"), {{"double_blocks.0.img_mod.lin.weight", ones({6, 1})}});
  const ModelFolder flux = with(folder, {.transformer = folder.path("flux")});
  expect_says(model_error([&] { open_weights(flux.component("transformer")); }),
              "are the weights of a FLUX.1 model, and the folder's transformer is a SD3");
  write_safetensors(folder.path("klein"),
                    {{"double_stream_modulation_img.lin.weight", ones({6, 1})}});
  const ModelFolder klein = with(folder, {.transformer = folder.path("klein")});
  expect_says(model_error([&] { open_weights(klein.component("transformer")); }),
              "are the weights of a FLUX.2 model, and the folder's transformer is a SD3");
  folder.write("llama.gguf",
               GgufImage().architecture("llama").floats("pos_embed", {1}, {1}).bytes());
  const ModelFolder llama = with(folder, {.transformer = folder.path("llama.gguf")});
  expect_says(model_error([&] { open_weights(llama.component("transformer")); }),
              "general.architecture is 'llama'");
}

TEST(WeightsFile, APartThatThePipelineDoesNotHaveIsRefused) {
  const ScratchFolder folder;
  folder.write("config.json", R"({"_class_name": "AutoencoderKL"})");
  write_safetensors(folder.path("f"), {{"a", ones({1})}});
  expect_says(usage_error([&] { with(folder, {.transformer = folder.path("f")}); }),
              "without a transformer");
}

TEST(WeightsFile, AFolderWithoutTheTransformerNeedsOneThatSaysAll) {
  const ScratchFolder folder;
  write_pipeline(folder);
  write_safetensors(folder.path("sd3"), {{"joint_blocks.0.x_block.attn.qkv.weight", ones({3, 1})}});
  expect_says(model_error([&] { with(folder, {.transformer = folder.path("sd3")}); }),
              "there is no tensor 'x_embedder.proj.weight'");
}

}  // namespace
}  // namespace tessera::load
