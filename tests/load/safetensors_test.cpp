#include "load/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

std::string scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("tessera_safetensors_" + name)).string();
}

std::string image_of(const std::string& header, const std::string& data) {
  std::string image(8, '\0');
  image[0] = static_cast<char>(header.size());
  return image + header + data;
}

}  // namespace

TEST(Safetensors, ReadsWhatWasWritten) {
  const std::string path = scratch("round.safetensors");
  const std::vector<float> values = {1, -2, 3.5f, 0, 5, 6};
  const std::vector<int32_t> ids = {7, -8};
  const Tensor wide = Tensor::from(std::span<const float>(values), {2, 3});
  write_safetensors(path,
                    {{"wide", wide},
                     {"columns", wide.slice(1, 1, 3)},
                     {"ids", Tensor::from(std::span<const int32_t>(ids), {2})},
                     {"bytes", Tensor::zeros({3}, DType::u8)},
                     {"nothing", Tensor::empty({0, 4}, DType::bf16)},
                     {"half", Tensor::zeros({5}, DType::f16)}},
                    {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 6u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.get("wide").to_floats(), values);
  EXPECT_EQ(file.get("columns").to_floats(), (std::vector<float>{-2, 3.5f, 5, 6}));
  EXPECT_EQ(file.get("ids").to_ints(), (std::vector<int64_t>{7, -8}));
  EXPECT_EQ(file.get("nothing").shape(), (tensor::Shape{0, 4}));
  EXPECT_EQ(file.get("half").dtype(), DType::f16);
  std::filesystem::remove(path);
}

TEST(Safetensors, AFileThatShrinksInUseIsAnError) {
  const std::string path = scratch("shrinks.safetensors");
  write_safetensors(path, {{"a", Tensor::zeros({1 << 20}, DType::f32)}});
  const SafetensorsFile file(path);
  const Tensor before = file.get("a");
  std::filesystem::resize_file(path, 4096);
  EXPECT_EQ(before.to_floats().back(), 0.0f);
  try {
    file.get("a");
    FAIL() << "what is gone was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find("was changed while it was in use"), std::string::npos);
  }
  std::filesystem::remove(path);
}

TEST(Safetensors, ReadsNothingAfterAStop) {
  const std::string path = scratch("stop.safetensors");
  write_safetensors(path, {{"a", Tensor::zeros({2}, DType::f32)}});
  const SafetensorsFile file(path);
  std::stop_source source;
  source.request_stop();
  {
    const base::BindStop bind(source.get_token());
    EXPECT_THROW(file.get("a"), Error);
  }
  EXPECT_EQ(file.get("a").to_floats(), (std::vector<float>{0, 0}));
  std::filesystem::remove(path);
}

TEST(Safetensors, TensorOutlivesItsFile) {
  const std::string path = scratch("life.safetensors");
  const std::vector<float> values = {4, 5};
  write_safetensors(path, {{"a", Tensor::from(std::span<const float>(values), {2})}});
  const Tensor kept = SafetensorsFile(path).get("a");
  std::filesystem::remove(path);
  EXPECT_EQ(kept.to_floats(), values);
}

TEST(Safetensors, WritesTheSameBytesEachTime) {
  const std::string path = scratch("stable.safetensors");
  auto written = [&] {
    write_safetensors(
        path, {{"b", Tensor::zeros({3}, DType::u8)}, {"a", Tensor::zeros({2}, DType::f32)}});
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string first = written();
  EXPECT_EQ(first, written());
  EXPECT_EQ((first.size() - 11) % 8, 0u) << "the data starts at a multiple of 8";
  EXPECT_EQ(first.substr(8, 5), "{\"a\":");
  std::filesystem::remove(path);
}

TEST(Safetensors, CopiesUnalignedData) {
  const std::string image = image_of(
      R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      std::string("\x05\0\0\x80\x3f", 5));
  const SafetensorsFile file(image, "memory", nullptr);
  EXPECT_EQ(file.get("y").to_floats(), std::vector<float>{1.0f});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.get("y").raw()) % 4, 0u);
  EXPECT_EQ(file.get("x").to_floats(), std::vector<float>{5});
}

TEST(Safetensors, NamesWhatItCannotCompute) {
  const std::string image =
      image_of(R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", std::string(8, '\0'));
  const SafetensorsFile file(image, "memory", nullptr);
  try {
    file.get("d");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find("'d' has dtype F64"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(file.get("missing"), Error);
  const std::string axes = image_of(
      R"({"s":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", std::string(1, '\0'));
  EXPECT_THROW(SafetensorsFile(axes, "memory", nullptr).get("s"), Error);
}

TEST(Safetensors, MissingFileIsAModelError) {
  try {
    SafetensorsFile file("no/such/model.safetensors");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find("no/such/model.safetensors"), std::string::npos);
  }
}

TEST(Safetensors, IdentityFollowsTheContent) {
  const std::string path = scratch("identity.safetensors");
  write_safetensors(path, {{"a", Tensor::zeros({1}, DType::f32)}});
  const std::string first = SafetensorsFile(path).identity();
  EXPECT_EQ(first, SafetensorsFile(path).identity());
  write_safetensors(path, {{"a", Tensor::zeros({2}, DType::f32)}});
  EXPECT_NE(first, SafetensorsFile(path).identity());
  std::filesystem::remove(path);
}

}  // namespace tessera::load
