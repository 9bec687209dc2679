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
  Tensor get(const std::string&, const tensor::Shape& shape) const override {
    return Tensor::zeros(shape, DType::f32);
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, DType compute,
                     const nn::Cut&) const override {
    Tensor w = Tensor::zeros({n, k}, DType::f32);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j)
        w.row<float>(i)[j] = name[0] == 'h' && name[1] == 'e' && i == 1 ? -1.0f : 1.0f;
    return ops::pack_weight(w, compute);
  }
  ops::Weight paired(const std::string&, const std::string&, int64_t, int64_t, DType,
                     const nn::Cut&) const override {
    return nullptr;
  }
  ops::ConvWeight conv(const std::string&, const std::string&, const tensor::Shape& shape,
                       DType compute) const override {
    Tensor w = Tensor::zeros(shape, DType::f32);
    w.data<float>()[4] = 1;  // first filter, first channel, middle
    return ops::pack_conv(w, Tensor::zeros({shape[0]}, DType::f32), compute);
  }
  Tensor vector(const std::string&, int64_t n, const nn::Cut&) const override {
    return Tensor::zeros({n}, DType::f32);
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
