#include "models/published_models.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::models {
namespace {

TEST(PublishedModels, AreFoundByTheirPublishedNames) {
  for (const auto& [asked, name] : std::vector<std::pair<std::string, std::string>>{
           {"black-forest-labs/FLUX.1-dev", "flux_1_dev"},
           {"FLUX.1-schnell", "flux_1_schnell"},
           {"PixArt-alpha/PixArt-XL-2-1024-MS", "pixart_alpha"},
           {"stabilityai/stable-diffusion-3-medium-diffusers", "sd3_medium"},
           {"Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers", "hunyuan_dit"},
           {"THUDM/CogVideoX1.5-5B", "cogvideox1_5_5b"},
           {"inclusionAI/LLaDA2.0-mini", "llada2_mini"},
           {"google/diffusiongemma-26B-A4B-it", "diffusion_gemma"},
           {"DiT-MoE-XL", "dit_moe_xl"}}) {
    const PublishedModel* const found = published_model(asked);
    ASSERT_NE(found, nullptr) << asked;
    EXPECT_EQ(found->name, name);
  }
  EXPECT_EQ(published_model("dit_moe_xxl"), nullptr);
  EXPECT_EQ(published_model(""), nullptr);
}

TEST(PublishedModels, HaveNamesOfTheirOwn) {
  std::set<std::string> keys;
  for (const PublishedModel& model : published_models()) {
    EXPECT_EQ(model_key(model.name), model.name);
    EXPECT_TRUE(keys.insert(model.name).second) << model.name;
    for (const std::string& alias : model.aliases) {
      EXPECT_EQ(model_key(alias), alias);
      EXPECT_TRUE(keys.insert(alias).second) << alias;
    }
  }
}

TEST(PublishedModels, DescribeEveryPart) {
  for (const PublishedModel& model : published_models())
    for (const auto& [name, part] : model.description.at("parts").items()) {
      EXPECT_TRUE(part.at("class").is_string()) << model.name << ' ' << name;
      EXPECT_TRUE(part.at("config").is_object()) << model.name << ' ' << name;
    }
}

}  // namespace
}  // namespace tessera::models
