#include "load/adapter_names.h"

#include <gtest/gtest.h>

namespace tessera::load {
namespace {

std::vector<AdapterPart> small_flux() {
  return {
      {"transformer",
       "FluxTransformer2DModel",
       {{"transformer_blocks.0.attn.to_q", 8, 8},
        {"transformer_blocks.0.attn.to_k", 8, 8},
        {"transformer_blocks.0.attn.to_v", 8, 8},
        {"transformer_blocks.0.attn.to_out.0", 8, 8},
        {"norm_out.linear", 16, 8}}},
      {"text_encoder", "CLIPTextModel", {{"text_model.encoder.layers.0.mlp.fc1", 8, 4}}},
      {"text_encoder_2", "T5EncoderModel", {{"encoder.block.0.layer.0.SelfAttention.q", 8, 8}}}};
}

}  // namespace

TEST(AdapterNames, FindsALayerByEveryMakersName) {
  const AdapterNames names(small_flux());
  for (const char* name :
       {"transformer.transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_q",
        "base_model.model.transformer_blocks.0.attn.to_q",
        "unet.base_model.model.transformer_blocks.0.attn.to_q",
        "diffusion_model.transformer_blocks.0.attn.to_q",
        "lora_transformer_transformer_blocks_0_attn_to_q",
        "lycoris_transformer_blocks_0_attn_to_q"}) {
    const auto* const rows = names.find(name);
    ASSERT_NE(rows, nullptr) << name;
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_EQ(rows->front().layer.name, "transformer_blocks.0.attn.to_q");
  }
  EXPECT_EQ(names.find("transformer.transformer_blocks.99.attn.to_q"), nullptr);
  EXPECT_EQ(names.find("transformer.transformer_blocks.0.attn.norm_q"), nullptr);
}

TEST(AdapterNames, AFusedLayerIsSeveral) {
  const AdapterNames names(small_flux());
  for (const char* name :
       {"lora_unet_double_blocks_0_img_attn_qkv", "diffusion_model.double_blocks.0.img_attn.qkv",
        "double_blocks.0.processor.qkv_lora1"}) {
    const auto* const rows = names.find(name);
    ASSERT_NE(rows, nullptr) << name;
    ASSERT_EQ(rows->size(), 3u);
    EXPECT_EQ(rows->at(2).layer.name, "transformer_blocks.0.attn.to_v");
    EXPECT_EQ(rows->at(2).begin, 16);
    EXPECT_FALSE(rows->at(2).swapped);
  }
  const auto* const last = names.find("lora_unet_final_layer_adaLN_modulation_1");
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(last->front().swapped);
}

TEST(AdapterNames, FindsTextEncoders) {
  const AdapterNames names(small_flux());
  for (const char* name :
       {"text_encoder.text_model.encoder.layers.0.mlp.fc1",
        "lora_te1_text_model_encoder_layers_0_mlp_fc1",
        "lora_te_text_model_encoder_layers_0_mlp_fc1",
        "text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1"}) {
    ASSERT_NE(names.find(name), nullptr) << name;
    EXPECT_EQ(names.find(name)->front().part, "text_encoder");
  }
  for (const char* name : {"lora_te2_encoder_block_0_layer_0_SelfAttention_q",
                           "lora_te3_encoder_block_0_layer_0_SelfAttention_q"}) {
    ASSERT_NE(names.find(name), nullptr) << name;
    EXPECT_EQ(names.find(name)->front().part, "text_encoder_2");
  }
}

}  // namespace tessera::load
