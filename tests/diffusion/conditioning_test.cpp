#include "diffusion/conditioning.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::diffusion {
namespace {

using tensor::Tensor;

Tensor of(const std::vector<float>& values, const tensor::Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}

models::PipelineSpec flux() {
  return models::pipeline_of("FluxTransformer2DModel", {base::Json::object(), "config.json"});
}
models::PipelineSpec pixart() {
  return models::pipeline_of("PixArtTransformer2DModel",
                             {base::Json::parse(R"({"caption_channels": 1})"), "config.json"});
}

Embeddings two_prompts() {
  return {{"prompt_embeds", of({1, 2}, {2, 1, 1})},
          {"pooled_prompt_embeds", of({10, 20}, {2, 1})},
          {"negative_prompt_embeds", of({5}, {1, 1, 1})},
          {"negative_pooled_prompt_embeds", of({50}, {1, 1})}};
}

TEST(Conditioning, EveryPromptStandsAsOftenAsAsked) {
  const nn::Conditioning c = text_conditioning(flux(), two_prompts(), 2, true);
  EXPECT_EQ(c.tensors.at("encoder_hidden_states").to_floats(),
            (std::vector<float>{1, 1, 2, 2, 5, 5, 5, 5}));
  EXPECT_EQ(c.tensors.at("pooled_projections").to_floats(),
            (std::vector<float>{10, 10, 20, 20, 50, 50, 50, 50}));
  const nn::Conditioning one = text_conditioning(flux(), two_prompts(), 1, false);
  EXPECT_EQ(one.tensors.at("encoder_hidden_states").to_floats(), (std::vector<float>{1, 2}));
}

TEST(Conditioning, ARankTakesItsRows) {
  const nn::Conditioning c = text_conditioning(flux(), two_prompts(), 1, true);
  EXPECT_EQ(take_sequences(c, {1, 3}).tensors.at("pooled_projections").to_floats(),
            (std::vector<float>{20, 50}));
}

TEST(Conditioning, GuidanceMakesASecondBranchOrIsAnInput) {
  GenerateRequest request;
  const Branches by_branch = branches_of(pixart(), request, 4.5f);
  EXPECT_TRUE(by_branch.two);
  EXPECT_EQ(by_branch.scale, 4.5f);
  EXPECT_FALSE(branches_of(pixart(), request, 1).two);
  EXPECT_FALSE(branches_of(flux(), request, 3.5f).two);
  request.true_guidance = 2;
  EXPECT_FALSE(branches_of(flux(), request, 3.5f).two) << "nothing to lead away from";
  EXPECT_EQ(branches_of(flux(), request, 3.5f).scale, 1);
  request.negative_prompt = "";
  const Branches both = branches_of(flux(), request, 3.5f);
  EXPECT_TRUE(both.two);
  EXPECT_EQ(both.scale, 2);
  EXPECT_EQ(both.embedded, 3.5f);
}

TEST(Conditioning, TextsOfDifferentLengthsArePaddedAndTold) {
  const base::Json config = base::Json::object();
  const auto spec = models::pipeline_of("ZImageTransformer2DModel", {config, "c"});
  const Embeddings e{{"prompt_embeds", of({1, 2, 3}, {1, 3, 1})},
                     {"negative_prompt_embeds", of({4}, {1, 1, 1})}};
  const auto c = text_conditioning(spec, e, 1, true).tensors;
  EXPECT_EQ(c.at("cap_feats").to_floats(), (std::vector<float>{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(c.at("cap_feats_mask").to_ints(), (std::vector<int64_t>{1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(spec.prefixes({c}), (std::vector<int64_t>{32, 32}));
}

TEST(Conditioning, GuidanceOfZImageCountsFromZero) {
  const base::Json config = base::Json::object();
  const auto spec = models::pipeline_of("ZImageTransformer2DModel", {config, "c"});
  EXPECT_FALSE(branches_of(spec, {}, 0).two);
  EXPECT_EQ(branches_of(spec, {}, 2.5f).scale, 3.5f);
}

TEST(Conditioning, NamesWhatIsMissing) {
  const auto says = [](const Embeddings& e, bool negative) {
    try {
      prompt_count(flux(), e, negative);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  Embeddings e = two_prompts();
  EXPECT_EQ(says(e, true), "nothing");
  e["pooled_prompt_embeds"] = of({1}, {1, 1});
  EXPECT_NE(says(e, true).find("of 1 prompts, not 2"), std::string::npos);
  e.erase("negative_prompt_embeds");
  EXPECT_NE(says(e, true).find("`guidance` 1"), std::string::npos);
  e.erase("prompt_embeds");
  EXPECT_NE(says(e, false).find("'prompt_embeds'"), std::string::npos);
}

}  // namespace
}  // namespace tessera::diffusion
