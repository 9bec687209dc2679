#include <gtest/gtest.h>

#include <filesystem>

#include "load/safetensors.h"
#include "tessera/error.h"

namespace tessera::load {

using tensor::DType;
using tensor::Tensor;

TEST(SafetensorsWriter, RefusesWhatHasNoElements) {
  const std::string path = (std::filesystem::temp_directory_path() / "tessera_never").string();
  EXPECT_THROW(write_safetensors(path, {{"a", Tensor()}}), Error);
  EXPECT_THROW(
      write_safetensors(path, {{"a", Tensor::empty({1}, DType::f32, tensor::Device::meta)}}),
      Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", Tensor::zeros({1}, DType::f32)}}), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsWriter, NamesAPathThatCannotBeWritten) {
  try {
    write_safetensors("/no/such/folder/x.safetensors", {{"a", Tensor::zeros({1}, DType::f32)}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder"), std::string::npos) << error.what();
  }
}

TEST(SafetensorsWriter, WritesInTheOrderGivenWhatComesLater) {
  const std::string path = (std::filesystem::temp_directory_path() / "tessera_planned").string();
  std::vector<std::string> order;
  const auto planned = [&](const char* name, int64_t bytes, int64_t comes) {
    return PlannedTensor{name, "U8", {bytes}, bytes, [&order, name, comes] {
                           order.push_back(name);
                           return Tensor::zeros({comes}, DType::u8);
                         }};
  };
  write_safetensors(path, std::vector{planned("b", 3, 3), planned("a", 5, 5)}, {{"format", "pt"}});
  EXPECT_EQ(order, (std::vector<std::string>{"b", "a"}));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entry("b").begin, 0);
  EXPECT_EQ(file.entry("a").end, 8);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::filesystem::remove(path);
  EXPECT_THROW(write_safetensors(path, std::vector{planned("b", 3, 4)}), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace tessera::load
