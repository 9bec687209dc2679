#include "evaluation/critic.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

using tensor::DType;
using tensor::Tensor;

/// Filters that read only red of the middle pixel, a hidden layer with their sum, and a head of
/// [+1, -1].
class PlainWeights : public nn::Weights {
 public:
  bool has(const std::string&) const override { return true; }
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override {
    Tensor w = Tensor::zeros(request.shape, DType::f32);
    if (request.form == Form::conv) {
      w.data<float>()[4] = 1;  // first filter, first channel, middle
      const Tensor bias = Tensor::zeros({request.shape[0]}, DType::f32);
      return {.filter = ops::pack_conv(w, bias, request.compute)};
    }
    if (request.form != Form::matrix) return {.tensor = w};
    for (int64_t i = 0; i < w.size(0); ++i)
      for (int64_t j = 0; j < w.size(1); ++j)
        w.row<float>(i)[j] = request.name.starts_with("he") && i == 1 ? -1.0f : 1.0f;
    return {.packed = ops::pack_weight(w, request.compute)};
  }
};

TEST(Critic, SumsWhatItsFiltersSee) {
  const Critic critic({.widths = {2, 1}, .hidden = 3, .classes = 2, .input = 8}, PlainWeights());
  Tensor images = Tensor::zeros({2, 8, 8, 3}, DType::f32);  // the second is all black
  for (int64_t p = 0; p < 64; ++p) images.data<float>()[p * 3] = 1;
  const Tensor logits = critic(images);
  // Red is 1 in [-1, 1], at 2 x 2 places, summed three times.
  EXPECT_FLOAT_EQ(logits.row<float>(0)[0], 12);
  EXPECT_FLOAT_EQ(logits.row<float>(0)[1], -12);
  EXPECT_FLOAT_EQ(logits.row<float>(1)[0], 0) << "ReLU";
  EXPECT_EQ(best_class(logits), (std::vector<int>{0, 0})) << "ties go to the lowest";
}

TEST(Critic, RefusesWhatDoesNotFit) {
  const Critic critic({.widths = {1}, .hidden = 1, .classes = 2, .input = 8}, PlainWeights());
  EXPECT_THROW(critic(Tensor::zeros({1, 8, 9, 3}, DType::f32)), Error);
  EXPECT_THROW(
      parse_critic_config(base::Json::parse(R"({"hidden": 1, "classes": 2, "input": 8})"), "c"),
      Error);
  EXPECT_THROW(
      parse_critic_config(
          base::Json::parse(R"({"widths": [0], "hidden": 1, "classes": 2, "input": 8})"), "c"),
      Error);
  EXPECT_THROW(parse_critic_config(base::Json::parse("[]"), "c"), Error);
}

}  // namespace
}  // namespace tessera::evaluation
