#include "load/file_scales.h"

#include <gtest/gtest.h>

#include <functional>

#include "load/safetensors.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

PlannedTensor planned(const std::string& name, const std::string& dtype, std::vector<int64_t> sizes,
                      const std::string& bytes) {
  return {name, dtype, std::move(sizes), std::ssize(bytes), [bytes] {
            Tensor x = Tensor::empty({std::ssize(bytes)}, DType::u8);
            std::copy(bytes.begin(), bytes.end(), x.data<char>());
            return x;
          }};
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// 1, 2, 448 and -1 in float8_e4m3fn, as two rows.
PlannedTensor eight_bits(const std::string& dtype = "F8_E4M3") {
  return planned("a.weight", dtype, {2, 2}, "\x38\x40\x7e\xb8");
}
PlannedTensor said(const std::string& text) {
  return planned("a.comfy_quant", "U8", {std::ssize(text)}, text);
}

TensorFile written(const ScratchFolder& folder, const std::vector<PlannedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {}) {
  static int count = 0;
  const std::string path = folder.path(std::to_string(++count) + ".safetensors");
  write_safetensors(path, tensors, metadata);
  return with_scales(SafetensorsFile(path));
}

std::string refused(const ScratchFolder& folder, const std::vector<PlannedTensor>& tensors) {
  return model_error([&] { written(folder, tensors); });
}

TEST(FileScales, Float8AloneIsItsValues) {
  const ScratchFolder folder;
  const TensorFile file =
      written(folder, {eight_bits(), planned("a.bias", "F8_E5M2", {1}, "\x3c")});
  EXPECT_EQ(file.dtype("a.weight"), DType::bf16);
  EXPECT_EQ(file.get("a.weight").to_floats(), (std::vector<float>{1, 2, 448, -1}));
  EXPECT_EQ(file.get("a.bias").to_floats(), (std::vector<float>{1}));
}

TEST(FileScales, OneFactorOrOneARow) {
  const ScratchFolder folder;
  const TensorFile one =
      written(folder, {eight_bits(), planned("a.scale_weight", "F32", {}, floats({0.1f})),
                       planned("a.scale_input", "F32", {}, floats({3})),
                       planned("scaled_fp8", "F8_E4M3", {2}, "\x38\x38")});
  EXPECT_EQ(one.entries().size(), 1u);
  EXPECT_EQ(one.dtype("a.weight"), DType::f32);
  EXPECT_EQ(one.get("a.weight").to_floats(),
            (std::vector<float>{0.1f, 2 * 0.1f, 448 * 0.1f, -0.1f}));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2}, {2, 1}}) {
    const TensorFile rows =
        written(folder, {eight_bits(), planned("a.weight_scale", "F32", sizes, floats({2, 0.5f}))});
    EXPECT_EQ(rows.get("a.weight").to_floats(), (std::vector<float>{2, 4, 224, -0.5f}));
  }
}

TEST(FileScales, Int8WhereItsFormatIsSaid) {
  const ScratchFolder folder;
  const PlannedTensor weight = planned("a.weight", "I8", {2, 2}, "\x01\x02\x7f\x80"),
                      scale = planned("a.weight_scale", "F32", {2, 1}, floats({2, 0.5f}));
  const std::vector<float> values{2, 4, 63.5f, -64};
  const TensorFile beside =
      written(folder, {weight, scale, said(R"({"format": "int8_tensorwise"})")});
  EXPECT_EQ(beside.get("a.weight").to_floats(), values);
  EXPECT_EQ(beside.entries().size(), 1u);
  const TensorFile header =
      written(folder, {weight, scale},
              {{"_quantization_metadata",
                R"({"layers": {"model.diffusion_model.a": {"format": "int8_tensorwise"}}})"}});
  EXPECT_EQ(header.get("a.weight").to_floats(), values);
  expect_says(refused(folder, {weight, scale}), "no 'comfy_quant' beside it says how");
  expect_says(refused(folder, {weight}), "'a.weight' is int8");
  expect_says(refused(folder, {weight, said(R"({"format": "int8_tensorwise"})")}), "has no scale");
}

TEST(FileScales, RefusesWhatWouldMeanSomethingElse) {
  const ScratchFolder folder;
  const auto scale = [](const char* name, std::vector<float> values, std::vector<int64_t> sizes) {
    return planned(name, "F32", std::move(sizes), floats(values));
  };
  expect_says(refused(folder, {eight_bits(), planned("scaled_fp8", "F8_E4M3", {0}, "")}),
              "the file says that it is scaled");
  expect_says(refused(folder, {eight_bits(), scale("a.scale_weight", {1, 1, 1}, {3})}),
              "'a.scale_weight' has the shape [3]");
  expect_says(refused(folder, {eight_bits(), scale("a.scale_weight", {NAN}, {})}),
              "'a.scale_weight' holds a scale");
  expect_says(refused(folder, {eight_bits(), scale("a.scale_weight", {1}, {}),
                               scale("a.weight_scale", {1}, {})}),
              "there are both");
  expect_says(refused(folder, {planned("a.weight", "F32", {1, 1}, floats({1})),
                               scale("a.weight_scale", {1}, {})}),
              "stands beside 'a.weight' (F32)");
  expect_says(refused(folder, {eight_bits(), scale("a.scale_input", {1}, {})}),
              "'a.scale_input' stands beside");
  const PlannedTensor factor = scale("a.weight_scale", {1}, {});
  const std::pair<const char*, const char*> kSaid[] = {
      {R"({"format": "nvfp4"})", "quantised as 'nvfp4', which is not read"},
      {R"({"format": "float8_e4m3fn", "convrot": true})", "'convrot'"},
      {R"({"format": "float8_e4m3fn", "group": 3})", "says 'group', which is not known"},
      {R"({"format": "float8_e5m2"})", "and it is F8_E4M3"},
      {R"({"kind": 1})", "names no 'format'"},
      {R"([])", "names no 'format'"},
      {"{", "comfy_quant"}};
  for (const auto& [text, says] : kSaid)
    expect_says(refused(folder, {eight_bits(), factor, said(text)}), says);
}

TEST(FileScales, ElementsThatAreNoNumbersAreRefused) {
  const ScratchFolder folder;
  const TensorFile file = written(folder, {planned("a.weight", "F8_E4M3", {1, 1}, "\x7f")});
  expect_says(model_error([&] { file.get("a.weight"); }), "'a.weight' (F8_E4M3) holds");
}

}  // namespace
}  // namespace tessera::load
