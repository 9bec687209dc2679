#include "runtime/tensor_view.h"

#include "whole/text_model.h"

namespace tessera::pipeline {
namespace {

TEST(TensorView, NumbersGoInAndOut) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const tensor::Tensor x = runtime::tensor_of("x", {ElementType::f32, {2, 3}, values.data()});
  EXPECT_EQ(x.shape(), (tensor::Shape{2, 3}));
  EXPECT_EQ(x.to_floats(), values);
  const TensorData data = runtime::data_of(x.slice(1, 1, 3));
  EXPECT_EQ(data.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(runtime::tensor_of("y", data.view()).to_floats(), (std::vector<float>{2, 3, 5, 6}));
}

TEST(TensorView, NamesWhatIsNone) {
  const auto said = [](const TensorView& view) {
    return golden::error_of([&] { runtime::tensor_of("x", view); });
  };
  EXPECT_NE(said({ElementType::f32, {2}, nullptr}).find("'x': [2] has no data"), std::string::npos);
  EXPECT_NE(said({static_cast<ElementType>(9), {}, nullptr}).find("type 9"), std::string::npos);
  const int64_t large = int64_t{1} << 40;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{-1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {large, large}, {large, 1 << 20}})
    EXPECT_NE(said({ElementType::f32, shape, &large}).find("the tensor 'x': "), std::string::npos);
  EXPECT_EQ(said({ElementType::i32, {0, 4}, nullptr}), "");
}

}  // namespace
}  // namespace tessera::pipeline
