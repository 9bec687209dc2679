#include "load/tensor_file.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "gguf_image.h"
#include "load/gguf.h"
#include "load/safetensors.h"
#include "scratch_folder.h"
#include "tensor/scope.h"

namespace tessera::load {
namespace {

using tensor::Tensor;

// A tensor of `rows` rows of 32 in Q8_0; element e of row r is 2^(r % 4) * (e - 16).
std::string rows_in_blocks(int64_t rows) {
  std::string bytes;
  for (int64_t r = 0; r < rows; ++r) {
    GgufImage::number(bytes, static_cast<uint16_t>((15 + r % 4) << 10));
    for (int e = 0; e < 32; ++e) bytes += static_cast<char>(e - 16);
  }
  return bytes;
}

float expected(int64_t row, int64_t e) {
  return static_cast<float>((int64_t{1} << row % 4) * (e - 16));
}

TEST(TensorFile, ExpandsBlocksOnThreads) {
  constexpr int64_t kRows = 9001;  // several pieces
  const std::string image = GgufImage().tensor("q", {kRows, 32}, 8, rows_in_blocks(kRows)).bytes();
  const GgufFile file(image, "memory", nullptr);
  base::ThreadPool pool(3);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  const std::vector<float> values = file.get("q").to_floats();
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t e = 0; e < 32; ++e)
      ASSERT_EQ(values[static_cast<size_t>(r * 32 + e)], expected(r, e)) << r << " " << e;
}

TEST(TensorFile, PutsSwappedHalvesInTheirOrder) {
  const std::string image =
      GgufImage().tensor("q", {4, 32}, 8, rows_in_blocks(4)).floats("b", {4}, {1, 2, 3, 4}).bytes();
  const GgufFile file(image, "memory", nullptr);
  std::map<std::string, TensorEntry> tensors = file.entries();
  for (auto& [name, entry] : tensors) entry.halves_swapped = true;
  const TensorFile swapped = file.with(tensors);
  EXPECT_EQ(swapped.get("b").to_floats(), (std::vector<float>{3, 4, 1, 2}));
  const std::vector<float> rows = swapped.get("q").to_floats();
  for (int64_t r = 0; r < 4; ++r)
    EXPECT_EQ(rows[static_cast<size_t>(r * 32)], expected((r + 2) % 4, 0));
  EXPECT_EQ(swapped.map("b", 16), nullptr);
}

TEST(TensorFile, MultipliesByTheScalesOfTheRows) {
  const ScratchFolder folder;
  write_safetensors(folder.path("f"), {{"w", Tensor::zeros({2, 3}, tensor::DType::i8)}});
  const SafetensorsFile file(folder.path("f"));
  std::map<std::string, TensorEntry> tensors = file.entries();
  TensorEntry& w = tensors.at("w");
  w.format = tensor::BlockFormat::int8;
  w.dtype = "F32";
  w.scales = std::make_shared<const std::vector<float>>(std::vector<float>{2, -4});
  EXPECT_EQ(file.with(tensors).get("w").to_floats(), (std::vector<float>(6, 0)));
  EXPECT_EQ(file.with(tensors).entry("w").bytes(), 24);
}

TEST(TensorFile, NamesWhatIsNotThere) {
  const GgufFile file(GgufImage().floats("a", {1}, {1}).bytes(), "memory", nullptr);
  expect_says(model_error([&] { file.get("b"); }), "there is no tensor 'b'");
}

}  // namespace
}  // namespace tessera::load
