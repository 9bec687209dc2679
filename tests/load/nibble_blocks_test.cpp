#include "load/nibble_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gguf_image.h"
#include "load/gguf.h"
#include "load/meta_weights.h"
#include "load/quantisation.h"
#include "load/tensor_set.h"
#include "load/weight_store.h"
#include "scratch_folder.h"
#include "test_paths.h"

namespace tessera::load {
namespace {

using tensor::DType;

// Random blocks of a ggml type, with `scales` f16 numbers of about 1/64 from byte `at` on.
std::string blocks(int64_t count, size_t bytes, size_t scales, uint32_t seed, size_t at = 0) {
  std::mt19937 random(seed);
  std::string all(static_cast<size_t>(count) * bytes, '\0');
  for (size_t i = 0; i < all.size(); i += 2) {
    const auto two = static_cast<uint16_t>(random());
    std::memcpy(all.data() + i, &two, 2);
  }
  for (size_t b = at; b < all.size(); b += bytes)
    for (size_t s = 0; s < scales; ++s) {
      const auto half = static_cast<uint16_t>(0x2400 | (random() & 0x83ff));
      std::memcpy(all.data() + b + 2 * s, &half, 2);
    }
  return all;
}

constexpr int64_t kRows = 40, kColumns = 96, kBlocks = kRows * kColumns / 32;
const std::string kAttention = "blocks.0.attn.q.weight", kFeed = "blocks.0.ff.net.weight";

std::string image() {
  return GgufImage()
      .tensor(kAttention, {kRows, kColumns}, 2, blocks(kBlocks, 18, 1, 3))
      .tensor("blocks.0.attn.k.weight", {kRows, kColumns}, 8, blocks(kBlocks, 34, 1, 4))
      .tensor(kFeed, {kRows, kColumns}, 3, blocks(kBlocks, 20, 2, 5))
      .tensor("blocks.0.norm.linear.weight", {kRows, kColumns}, 2, blocks(kBlocks, 18, 1, 6))
      .floats("blocks.0.attn.v.weight", {1, 32}, std::vector<float>(32))
      .bytes();
}

TEST(NibbleBlocks, AreTheFilesNumbers) {
  const ScratchFolder folder;
  folder.write("f.gguf", image());
  const GgufFile file(folder.path("f.gguf"));
  EXPECT_TRUE(has_nibble_blocks(file.entry(kAttention)));
  EXPECT_FALSE(has_nibble_blocks(file.entry(kFeed)));
  const ops::StoredMatrix made = nibbles_of(file, kAttention);
  const std::vector<float> values = file.get(kAttention).to_floats();
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < kColumns; ++i) {
      const float scale =
          tensor::to_float(made.scales.row<tensor::BFloat16>(r)[i / ops::kGroupElements]);
      const float value =
          scale * static_cast<float>(kernels::nibble(made.values.row<uint8_t>(r), i));
      const float expected = values[static_cast<size_t>(r * kColumns + i)];
      EXPECT_LE(std::fabs(value - expected), 0x1p-8f * std::fabs(expected)) << r << ' ' << i;
    }
}

TEST(NibbleBlocks, AScaleThatIsNoNumberIsRefused) {
  const ScratchFolder folder;
  std::string bytes = blocks(kBlocks, 18, 1, 3);
  bytes[18 * 7 + 1] = 0x7e;
  folder.write("f.gguf", GgufImage().tensor("w", {kRows, kColumns}, 2, bytes).bytes());
  const GgufFile file(folder.path("f.gguf"));
  expect_says(model_error([&] { nibbles_of(file, "w"); }), "holds a scale that is infinite");
}

// Checks the form of each product, and compares packing by a store with the prediction on meta.
TEST(NibbleBlocks, ProductsHaveTheBitsOfTheFile) {
  const ScratchFolder folder;
  folder.write("f.gguf", image());
  TensorSet set({GgufFile(folder.path("f.gguf"))});
  const auto form = [&](const std::string& name) {
    return packed_as(set, name, DType::bf16, kColumns);
  };
  EXPECT_EQ(form(kAttention), DType::bf16) << "without a rule";
  QuantiseRules rules;
  rules.add("blocks=int8", "test");
  set.quantise(rules, ProductsOf::transformer);
  EXPECT_EQ(form(kAttention), ops::WeightForm::of_rows(true));
  EXPECT_EQ(form("blocks.0.attn.k.weight"), ops::WeightForm::of_rows(false));
  EXPECT_EQ(form(kFeed), ops::WeightForm::of_rows(false));
  EXPECT_EQ(form("blocks.0.norm.linear.weight"), ops::WeightForm::of_rows(false))
      << "a modulation in int4 blocks";
  EXPECT_EQ(form("blocks.0.attn.v.weight"), DType::bf16) << "floats";
  EXPECT_EQ(packed_as(set, kAttention, DType::f32, kColumns), DType::f32);
  EXPECT_EQ(pair_packed_as(set, kAttention, kFeed, DType::bf16, kColumns),
            ops::WeightForm::of_rows(false));
  for (const std::string& name : {kAttention, kFeed}) {
    const ops::Weight packed = WeightStore().open(set)->matrix(name, kRows, kColumns, DType::bf16);
    const ops::Weight meta = MetaWeights(set).matrix(name, kRows, kColumns, DType::bf16);
    EXPECT_EQ(packed->bytes(), meta->bytes());
    EXPECT_EQ(packed->int4, name == kAttention);
    EXPECT_TRUE(packed->int8_rows);
  }
  rules.add("attn=bf16", "test");
  set.quantise(rules, ProductsOf::transformer);
  EXPECT_EQ(form(kAttention), DType::bf16) << "the rule of the user";
  rules.add("attn=int8,blocks=bf16", "test");
  set.quantise(rules, ProductsOf::transformer);
  EXPECT_EQ(form(kAttention), ops::WeightForm::of_rows(false));
  EXPECT_EQ(form(kFeed), DType::bf16) << "exact";
  EXPECT_THROW(rules.add("blocks=int4", "test"), Error);
}

// Int8 with a scale per row adds less than a percent to the formats converted to int8.
TEST(NibbleBlocks, Int8AddsLittle) {
  struct Format {
    uint32_t type;
    int64_t elements;
    size_t bytes, scales, at;
  };
  constexpr Format kFormats[] = {{3, 32, 20, 2, 0},      {6, 32, 22, 1, 0},    {7, 32, 24, 2, 0},
                                 {8, 32, 34, 1, 0},      {20, 32, 18, 1, 0},   {10, 256, 84, 2, 80},
                                 {11, 256, 110, 1, 108}, {12, 256, 144, 2, 0}, {13, 256, 176, 2, 0},
                                 {14, 256, 210, 1, 208}, {23, 256, 136, 1, 0}};
  constexpr int64_t kWide = 512;
  for (const Format& f : kFormats) {
    SCOPED_TRACE(f.type);
    const ScratchFolder folder;
    const std::string bytes = blocks(kRows * kWide / f.elements, f.bytes, f.scales, f.type, f.at);
    folder.write("f.gguf", GgufImage().tensor("w", {kRows, kWide}, f.type, bytes).bytes());
    const tensor::Tensor w = GgufFile(folder.path("f.gguf")).get("w");
    EXPECT_LT(ops::relative_error(ops::quantised(w, false), w), 0.01);
  }
}

}  // namespace
}  // namespace tessera::load
