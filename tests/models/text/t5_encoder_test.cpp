#include "models/text/t5_encoder.h"

#include "models/text/tiny_text.h"

namespace tessera::models {
namespace {

const base::Json kTiny = {{"vocab_size", 20},
                          {"d_model", 8},
                          {"d_kv", 4},
                          {"d_ff", 12},
                          {"num_layers", 2},
                          {"num_heads", 3},
                          {"feed_forward_proj", "gated-gelu"}};

TEST(T5Encoder, BucketsAreThoseOfThePaper) {
  const T5Config c;
  EXPECT_EQ(t5_bucket(0, c), 0);
  EXPECT_EQ(t5_bucket(-7, c), 7);
  EXPECT_EQ(t5_bucket(7, c), 23);
  EXPECT_EQ(t5_bucket(-8, c), 8);
  EXPECT_EQ(t5_bucket(-16, c), 10);
  EXPECT_EQ(t5_bucket(-127, c), 15);
  EXPECT_EQ(t5_bucket(5000, c), 31);
}

TEST(T5Encoder, PaddingIsNotReadAndTextsDoNotMix) {
  const auto encoder = tiny::make("T5EncoderModel", kTiny);
  const auto one = encoder->encode({{3, 4, 5, 0, 0}, {3}, 5}).last;
  const auto two = encoder->encode({{7, 8, 9, 1, 2, 3, 4, 5, 11, 12}, {5, 3}, 5}).last;
  EXPECT_EQ(tiny::tokens(one, 0, 0, 3), tiny::tokens(two, 1, 0, 3));
  const auto all = encoder->encode({{3, 4, 5, 0, 0}, {5}, 5}).last;
  EXPECT_NE(tiny::tokens(one, 0, 0, 3), tiny::tokens(all, 0, 0, 3));
}

TEST(T5Encoder, ShowsEveryLayer) {
  std::vector<std::string> names;
  tiny::make("T5EncoderModel", kTiny)
      ->encode({{1, 2}, {2}, 2}, [&](const std::string& name, const tensor::Tensor& x) {
        EXPECT_EQ(x.shape(), (tensor::Shape{1, 2, 8}));
        names.push_back(name);
      });
  EXPECT_EQ(names, (std::vector<std::string>{"hidden.0", "hidden.1", "hidden.2"}));
}

TEST(T5Encoder, RefusesOtherActivations) {
  base::Json config = kTiny;
  config["feed_forward_proj"] = "relu";
  EXPECT_NE(tiny::refusal("T5EncoderModel", config).find("gated-gelu"), std::string::npos);
  config["feed_forward_proj"] = "gated-silu";
  EXPECT_NE(tiny::refusal("T5EncoderModel", config).find("gated-silu"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
