#include "models/text/text_encoder.h"

#include "models/text/tiny_text.h"

namespace tessera::models {
namespace {

const base::Json kBert = {{"vocab_size", 9},        {"hidden_size", 8},
                          {"num_hidden_layers", 1}, {"num_attention_heads", 2},
                          {"intermediate_size", 8}, {"max_position_embeddings", 4}};

TEST(TextEncoder, OthersAreRefusedByName) {
  const std::string said = tiny::refusal("UMT5EncoderModel", base::Json::object());
  EXPECT_NE(said.find("UMT5EncoderModel"), std::string::npos);
  EXPECT_NE(said.find("CLIPTextModelWithProjection"), std::string::npos);
}

TEST(TextEncoder, TextsAreChecked) {
  const auto encoder = tiny::make("BertModel", kBert, "bert.");
  EXPECT_EQ(encoder->encode({{0, 8}, {2}, 2}).last.shape(), (tensor::Shape{1, 2, 8}));
  EXPECT_THROW(encoder->encode({{0, 9}, {2}, 2}), Error);           // no such token
  EXPECT_THROW(encoder->encode({{0, -1}, {2}, 2}), Error);          // no such token
  EXPECT_THROW(encoder->encode({{0, 1, 2, 3, 4}, {5}, 5}), Error);  // too long
  EXPECT_THROW(encoder->encode({{0, 1}, {2, 2}, 2}), Error);        // of two texts
  EXPECT_THROW(encoder->encode({{0, 1}, {3}, 2}), Error);           // more than there are
}

TEST(TextEncoder, EveryKindRefusesImpossibleNumbers) {
  for (const char* bad : {"-1", "0", "1", "1e300", "\"small\""}) {
    const std::string value = std::string(": ") + bad + "}";
    const auto says = [&](const char* kind, const char* key) {
      const std::string said =
          tiny::refusal(kind, base::Json::parse("{\"" + std::string(key) + "\"" + value));
      EXPECT_NE(said.find("'" + std::string(key) + "' is"), std::string::npos) << said;
      EXPECT_NE(said.find("above 0 and below 1"), std::string::npos) << said;
    };
    says("T5EncoderModel", "layer_norm_epsilon");
    says("CLIPTextModel", "layer_norm_eps");
    says("BertModel", "layer_norm_eps");
  }
  const std::string said = tiny::refusal("T5EncoderModel", {{"d_ff", -10240}});
  EXPECT_NE(said.find("'d_ff' is -10240"), std::string::npos) << said;
}

}  // namespace
}  // namespace tessera::models
