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

}  // namespace tessera::load
