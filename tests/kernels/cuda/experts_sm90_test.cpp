#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/experts_sm90.h"
#include "kernels/experts_layer.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/experts_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

#if !defined(TESSERA_ON_GPU)
struct Warpgroups {
  Warpgroups() { emulation::warpgroups = true; }
  ~Warpgroups() { emulation::warpgroups = false; }
};
#else
struct Warpgroups {
  Warpgroups() {}
};
#endif

void expect_the_references(const Layer& layer, const Tensor& x, const std::vector<int32_t>& ids) {
  const Warpgroups on;
  // Rows of i8 weights stay as exact as f32 until they are rounded to the layer's dtype.
  const bool rounded = layer.weights[0].dtype == DType::bf16 || x.dtype() == DType::bf16;
  const Tensor got = layer.run(kThere, cuda::experts, x, ids);
  EXPECT_LT(relative_l2(got, layer.run(kHost, reference::experts, x, ids)), rounded ? 4e-3 : 5e-5);
  EXPECT_TRUE(same_bits(again([&] { return layer.run(kThere, cuda::experts, x, ids); }), got));
}

// Tensor maps are parameters of several kernels; some experts have no rows, one has many.
TEST(CudaExpertsSm90, MoreExpertsThanMapsOfAKernel) {
  const int experts = 2 * cuda::kExpertMaps + 3;
  std::vector<int32_t> ids;
  for (int i = 0; i < 150; ++i) ids.push_back(i % 3 == 0 ? 70 : i * 7 % experts);
  ids[5] = -1;
  expect_the_references(Layer(24, 16, experts, DType::bf16),
                        random_tensor({75, 24}, DType::bf16, 4), ids);
  expect_the_references(Layer(32, 16, experts, DType::i8), random_tensor({75, 32}, DType::f32, 4),
                        ids);
}

TEST(CudaExpertsSm90, TilesThatAreJustFull) {
  std::vector<int32_t> ids;
  for (const auto& [expert, rows] : {std::pair{0, 127}, {1, 128}, {3, 129}})
    ids.insert(ids.end(), static_cast<size_t>(rows), expert);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    expect_the_references(Layer(72, 136, 4, DType::bf16),
                          random_tensor({std::ssize(ids), 72}, dtype, 4), ids);
    // More blocks along k than stages, with a partial last block; columns beyond whole tiles.
    expect_the_references(Layer(272, 144, 4, DType::i8),
                          random_tensor({std::ssize(ids), 272}, dtype, 4), ids);
  }
}

TEST(CudaExpertsSm90, TakesBf16AndI8OfWholeWords) {
  const auto serves = [](int64_t hidden, int64_t inner, DType weights, DType dtype) {
    const Layer layer(hidden, inner, 1, weights);
    const ExpertView view{&layer.weights[0], &layer.weights[1]};
    alignas(16) static unsigned char rows[64];
    return cuda::serves_sm90(
        {.dtype = dtype, .hidden = hidden, .bank = &view, .experts = 1, .rows = rows});
  };
  EXPECT_TRUE(serves(16, 24, DType::bf16, DType::bf16));
  EXPECT_TRUE(serves(16, 24, DType::bf16, DType::f32));
  EXPECT_FALSE(serves(16, 20, DType::bf16, DType::bf16));
  EXPECT_FALSE(serves(20, 24, DType::bf16, DType::bf16));
  EXPECT_FALSE(serves(16, 24, DType::bf16, DType::f16));
  EXPECT_TRUE(serves(16, 32, DType::i8, DType::bf16));
  EXPECT_TRUE(serves(16, 32, DType::i8, DType::f32));
  EXPECT_FALSE(serves(16, 24, DType::i8, DType::bf16));
  EXPECT_FALSE(serves(24, 32, DType::i8, DType::f32));
}

}  // namespace
}  // namespace tessera::kernels
