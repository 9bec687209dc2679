#include "models/text/clip_encoder.h"

#include "models/text/tiny_text.h"

namespace tessera::models {
namespace {

const base::Json kTiny = {{"vocab_size", 20},         {"hidden_size", 8},
                          {"intermediate_size", 12},  {"num_hidden_layers", 2},
                          {"num_attention_heads", 2}, {"max_position_embeddings", 6},
                          {"projection_dim", 5},      {"eos_token_id", 2}};

TEST(ClipEncoder, ATokenSeesThoseBeforeIt) {
  const auto encoder = tiny::make("CLIPTextModel", kTiny);
  const auto one = encoder->encode({{3, 4, 5, 6}, {4}, 4}).last;
  const auto two = encoder->encode({{7, 8, 9, 1, 3, 4, 5, 9}, {4, 4}, 4}).last;
  EXPECT_EQ(tiny::tokens(one, 0, 0, 3), tiny::tokens(two, 1, 0, 3));
  EXPECT_NE(tiny::tokens(one, 0, 3, 4), tiny::tokens(two, 1, 3, 4));
}

TEST(ClipEncoder, PoolsWhereTheTextEnds) {
  const auto published = tiny::make("CLIPTextModel", kTiny);
  const auto states = published->encode({{3, 19, 5, 19}, {4}, 4});
  EXPECT_EQ(states.pooled.to_floats(), tiny::tokens(states.last, 0, 1, 2));  // the first largest
  EXPECT_FALSE(states.projected.defined());
  base::Json config = kTiny;
  config["eos_token_id"] = 5;
  const auto other = tiny::make("CLIPTextModelWithProjection", config)
                         ->encode({{3, 19, 5, 19, 1, 1, 1, 1}, {4, 4}, 4});
  const auto pooled = other.pooled.to_floats();
  EXPECT_EQ(std::vector<float>(pooled.begin(), pooled.begin() + 8),
            tiny::tokens(other.last, 0, 2, 3));
  EXPECT_EQ(std::vector<float>(pooled.begin() + 8, pooled.end()),
            tiny::tokens(other.last, 1, 0, 1));  // without an end
  EXPECT_EQ(other.projected.shape(), (tensor::Shape{2, 5}));
}

TEST(ClipEncoder, ReadsNamesWithAndWithoutPrefix) {
  const auto bare = tiny::make("CLIPTextModel", kTiny, "text_model.");
  const auto published = tiny::make("CLIPTextModel", kTiny, "embeddings.");
  EXPECT_NE(bare->encode({{1, 2}, {2}, 2}).last.to_floats(),
            published->encode({{1, 2}, {2}, 2}).last.to_floats());
}

TEST(ClipEncoder, RefusesHeadsThatDoNotFit) {
  base::Json config = kTiny;
  config["num_attention_heads"] = 3;
  EXPECT_NE(tiny::refusal("CLIPTextModel", config).find("3 heads"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
