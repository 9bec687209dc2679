#include "load/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "gguf_image.h"
#include "load/safetensors.h"
#include "scratch_folder.h"
#include "test_paths.h"

namespace tessera::load {
namespace {

namespace fs = std::filesystem;

const std::string kFiles = TESSERA_TEST_DATA "/files/";

// Fifteen types, two rows each, against the reference implementation; scales include 0, negative
// and subnormal values.
TEST(GgufFile, EveryTypeIsTheReferencesBitByBit) {
  const GgufFile file(kFiles + "types.gguf");
  const SafetensorsFile expected(kFiles + "types.safetensors");
  EXPECT_EQ(expected.entries().size(), 15u);
  for (const auto& [type, entry] : expected.entries()) {
    SCOPED_TRACE(type);
    std::string name = type;
    for (const auto& [stored, one] : file.entries())
      if (stored == type || stored.ends_with("." + type)) name = stored;
    ASSERT_TRUE(file.has(name));
    EXPECT_EQ(file.entry(name).sizes, entry.sizes);
    const std::vector<float> values = file.get(name).to_floats(),
                             reference = expected.get(type).to_floats();
    ASSERT_EQ(values.size(), reference.size());
    EXPECT_EQ(std::memcmp(values.data(), reference.data(), values.size() * sizeof(float)), 0);
  }
}

TEST(GgufFile, TypesThatAreNotReadAreNamed) {
  const std::string error = model_error([] { GgufFile(kFiles + "types_rare.gguf"); });
  expect_says(error, "which is not read");
  expect_says(error, "is of type TQ");
}

TEST(GgufFile, HostileFilesAreRefusedInOneLine) {
  int refused = 0;
  for (const auto& item : fs::directory_iterator(kFiles + "hostile")) {
    const std::string path = item.path().string(), name = item.path().filename().string();
    // Sound containers: their model is not.
    if (name == "fine.gguf" || name == "nan_scale.gguf" || name == "architecture_llama.gguf")
      continue;
    SCOPED_TRACE(name);
    const std::string error = model_error([&] { open_tensor_file(path); });
    expect_says(error, name);
    EXPECT_LT(error.size(), 1000u);
    ++refused;
  }
  EXPECT_EQ(refused, 39);
  EXPECT_EQ(GgufFile(kFiles + "hostile/fine.gguf").entries().size(), 2u);
}

TEST(GgufFile, AScaleThatIsNoNumberIsRefusedWhereItIsRead) {
  const GgufFile file(kFiles + "hostile/nan_scale.gguf");
  int refused = 0;
  for (const auto& [name, entry] : file.entries()) {
    if (!entry.format) continue;
    const std::string error = model_error([&, n = name] { file.get(n); });
    expect_says(error, "'" + name + "'");
    expect_says(error, "nan_scale.gguf");
    ++refused;
  }
  EXPECT_EQ(refused, 1);
}

TEST(GgufFile, BlocksStayReachableAsTheyLie) {
  const GgufFile file(kFiles + "types.gguf");
  for (const auto& [name, entry] : file.entries()) {
    if (!entry.format) continue;
    const tensor::BlockSize size = tensor::block_size(*entry.format);
    std::vector<std::byte> blocks(static_cast<size_t>(entry.stored_bytes()));
    file.read_stored(name, blocks.data());
    std::vector<float> values(static_cast<size_t>(entry.elements()));
    tensor::expand_blocks(*entry.format, blocks.data(), std::ssize(blocks) / size.bytes,
                          values.data());
    EXPECT_EQ(values, file.get(name).to_floats()) << name;
    EXPECT_EQ(file.map(name, 1), nullptr) << name;
  }
}

TEST(GgufFile, IsKnownByItsFirstBytes) {
  const ScratchFolder folder;
  folder.write("weights.bin", GgufImage().floats("a", {2, 3}, {1, 2, 3, 4, 5, 6}).bytes());
  const TensorFile file = open_tensor_file(folder.path("weights.bin"));
  EXPECT_EQ(file.entry("a").sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.get("a").to_floats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(file.identity().empty());
}

}  // namespace
}  // namespace tessera::load
