#include "models/text/language_encoder.h"

#include "models/text/tiny_text.h"

namespace tessera::models {
namespace {

const base::Json kTiny = {
    {"vocab_size", 20},       {"hidden_size", 8},         {"intermediate_size", 12},
    {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
    {"head_dim", 6},          {"rope_theta", 10000},      {"attention_bias", false}};

TEST(LanguageEncoder, ATokenSeesWhatStandsBeforeItAlone) {
  const auto encoder = tiny::make("Qwen3Model", kTiny, "");
  const auto one = encoder->encode({{3, 4, 5, 6, 7}, {5}, 5}).last;
  const auto other = encoder->encode({{3, 4, 5, 9, 9}, {5}, 5}).last;
  EXPECT_EQ(tiny::tokens(one, 0, 0, 3), tiny::tokens(other, 0, 0, 3));
  EXPECT_NE(tiny::tokens(one, 0, 3, 5), tiny::tokens(other, 0, 3, 5));
}

TEST(LanguageEncoder, PaddingSeesTheTextAloneAndTextsDoNotMix) {
  const auto encoder = tiny::make("Qwen3Model", kTiny, "");
  const auto two = encoder->encode({{3, 4, 0, 0, 5, 6, 7, 8}, {2, 4}, 4}).last;
  const auto one = encoder->encode({{3, 4, 9, 0}, {2}, 4}).last;
  EXPECT_EQ(tiny::tokens(two, 0, 0, 2), tiny::tokens(one, 0, 0, 2));
  EXPECT_EQ(tiny::tokens(two, 0, 3, 4), tiny::tokens(one, 0, 3, 4)) << "a pad does not see another";
}

TEST(LanguageEncoder, GivesChosenStatesSideBySideAndEndsBehindTheLast) {
  const auto encoder = tiny::make("Qwen3ForCausalLM", kTiny, "");
  std::map<std::string, tensor::Tensor> seen;
  TextBatch batch{{1, 2}, {2}, 2};
  encoder->encode(batch, [&](const std::string& name, const tensor::Tensor& x) { seen[name] = x; });
  batch.hidden = {1, -2};
  std::vector<std::string> names;
  const TextStates chosen = encoder->encode(
      batch, [&](const std::string& name, const tensor::Tensor&) { names.push_back(name); });
  EXPECT_EQ(chosen.chosen.shape(), (tensor::Shape{1, 2, 16}));
  EXPECT_FALSE(chosen.last.defined());
  const auto first = chosen.chosen.slice(2, 0, 8).contiguous().to_floats();
  EXPECT_EQ(first, seen.at("hidden.1").to_floats());
  const auto second = chosen.chosen.slice(2, 8, 16).contiguous().to_floats();
  EXPECT_EQ(second, seen.at("hidden.2").to_floats());
  EXPECT_EQ(names.back(), "hidden.2");
  EXPECT_EQ(encoder->layers_for(batch.hidden), 2);
  batch.hidden = {3};
  EXPECT_THROW(encoder->encode(batch), Error);
}

TEST(LanguageEncoder, StandsInsideAVisionLanguageModel) {
  base::Json whole{{"text_config", kTiny}, {"vision_config", base::Json::object()}};
  whole["text_config"]["rope_theta"] = 5000000;  // Qwen3-VL's
  const auto inside = tiny::make("Qwen3VLForConditionalGeneration", whole, "");
  EXPECT_EQ(inside->layers(), 3);
  EXPECT_EQ(inside->vocabulary(), 20);
}

TEST(LanguageEncoder, RefusesWhatItDoesNotCompute) {
  base::Json config = kTiny;
  config["rope_scaling"] = {{"rope_type", "yarn"}};
  EXPECT_NE(tiny::refusal("Qwen3Model", config).find("yarn"), std::string::npos);
  config = kTiny;
  config["use_sliding_window"] = true;
  EXPECT_NE(tiny::refusal("Qwen3Model", config).find("use_sliding_window"), std::string::npos);
  config = kTiny;
  config["num_key_value_heads"] = 3;
  EXPECT_NE(tiny::refusal("Qwen3Model", config).find("4 heads over 3"), std::string::npos);
  config = kTiny;
  config["hidden_act"] = "gelu";
  EXPECT_NE(tiny::refusal("Qwen3Model", config).find("gelu"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
