#include "models/text/bert_encoder.h"

#include "models/text/tiny_text.h"

namespace tessera::models {
namespace {

const base::Json kTiny = {{"vocab_size", 20},        {"hidden_size", 8},
                          {"num_hidden_layers", 2},  {"num_attention_heads", 2},
                          {"intermediate_size", 12}, {"max_position_embeddings", 6}};

TEST(BertEncoder, PaddingIsNotReadAndTextsDoNotMix) {
  const auto encoder = tiny::make("BertModel", kTiny, "bert.");
  const auto one = encoder->encode({{3, 4, 5, 0, 0}, {3}, 5}).last;
  const auto two = encoder->encode({{7, 8, 9, 1, 2, 3, 4, 5, 11, 12}, {5, 3}, 5}).last;
  EXPECT_EQ(tiny::tokens(one, 0, 0, 3), tiny::tokens(two, 1, 0, 3));
  const auto later = encoder->encode({{3, 4, 6, 0, 0}, {3}, 5}).last;
  EXPECT_NE(tiny::tokens(one, 0, 0, 1), tiny::tokens(later, 0, 0, 1));  // both directions
}

TEST(BertEncoder, RefusesOtherPositions) {
  base::Json config = kTiny;
  config["position_embedding_type"] = "relative_key";
  EXPECT_NE(tiny::refusal("BertModel", config).find("relative_key"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
