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
  EXPECT_THROW(encoder->encode({{0, 1}, {2, 2}, 2}), Error);        // mask of two texts
  EXPECT_THROW(encoder->encode({{0, 1}, {3}, 2}), Error);           // more than there are
}

/// Weights that record requests.
class Heard : public tiny::AnyWeights {
 public:
  using AnyWeights::AnyWeights;
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    names.push_back(name);
    return AnyWeights::stored(name, shape);
  }
  mutable std::vector<std::string> names;
};

const base::Json kT5 = {{"vocab_size", 9},
                        {"d_model", 8},
                        {"d_kv", 4},
                        {"d_ff", 8},
                        {"num_layers", 3},
                        {"num_heads", 2},
                        {"feed_forward_proj", "gated-gelu"}};
const base::Json kClip = {{"vocab_size", 9},
                          {"hidden_size", 8},
                          {"intermediate_size", 8},
                          {"num_hidden_layers", 3},
                          {"num_attention_heads", 2}};

// A layer uses the weights of its own turn, everything else those of the encoder; weights requested
// in advance are equal.
TEST(TextEncoder, LayersTakeTheWeightsThatTheyAreGiven) {
  const TextBatch batch{{0, 8, 3, 1}, {2, 1}, 2};
  base::Json bert = kBert;
  bert["num_hidden_layers"] = 3;
  for (const auto& [type, config, lacks, layer] :
       {std::tuple{"T5EncoderModel", kT5, "none", "encoder.block.1."},
        {"CLIPTextModelWithProjection", kClip, "text_model.", "encoder.layers.1."},
        {"BertModel", bert, "bert.", "encoder.layer.1."}}) {
    const auto own = std::make_shared<Heard>(lacks);
    const auto encoder = text_encoder_of(type, {config, "config.json"}, own, tiny::DType::f32);
    ASSERT_EQ(encoder->layers(), 3);
    const std::vector<float> whole = encoder->encode(batch).last.to_floats();
    own->names.clear();
    std::vector<std::shared_ptr<Heard>> given;
    std::vector<std::weak_ptr<Heard>> passed;
    const auto states = encoder->encode(batch, {}, [&](int64_t i) {
      EXPECT_EQ(i, std::ssize(passed)) << "layers come in order";
      for (size_t b = 0; b < passed.size(); ++b)
        EXPECT_EQ(passed[b].expired(), b != 1) << "one at a time, but for whom we hold";
      const auto weights = std::make_shared<Heard>(lacks);
      passed.push_back(weights);
      if (i == 1) given.push_back(weights);
      return weights;
    });
    EXPECT_EQ(states.last.to_floats(), whole) << type;
    EXPECT_EQ(passed.size(), 3u);
    ASSERT_EQ(given.size(), 1u);
    const std::vector<std::string> mine = given[0]->names;
    EXPECT_GE(mine.size(), 7u) << type;
    for (const std::string& name : mine) EXPECT_NE(name.find(layer), std::string::npos) << name;
    for (const std::string& name : own->names)
      EXPECT_EQ(name.find(layer), std::string::npos) << name << " is not of the layer's";
    Heard asked(lacks);
    encoder->ask(1, asked);
    EXPECT_EQ(asked.names, mine) << type;
  }
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
