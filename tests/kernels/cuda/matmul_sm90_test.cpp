#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "kernels/closeness.h"
#include "kernels/cuda/matmul_sm90.h"
#include "kernels/matmul_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/matmul_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

// Products with epilogues unknown to the library, large enough for the kernel of Hopper.
const std::vector<MatmulProblem> kSmall = {
    {64, 24, 72, DType::bf16, DType::bf16, DType::bf16, Activation::silu, true, false, false, false,
     8},
    {130, 136, 64, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true, true,
     false, 0},
    {70, 264, 136, DType::f32, DType::bf16, DType::bf16, Activation::none, true, true, true, true,
     3},
    {200, 520, 40, DType::bf16, DType::bf16, DType::f32, Activation::gelu_erf, false, true, false,
     false, 8},
    {154, 136, 64, DType::bf16, DType::bf16, DType::bf16, Activation::quick_gelu, true, false,
     false, false, 0},
    {150, 72, 200, DType::bf16, DType::bf16, DType::bf16, Activation::swiglu, false, false, true,
     false, 16},
    {131, 400, 24, DType::bf16, DType::bf16, DType::f16, Activation::swiglu, false, true, false,
     false, 0},
};
const std::vector<MatmulProblem> kLarge = {
    {1024, 3456, 1152, DType::bf16, DType::bf16, DType::bf16, Activation::none, true, false, true,
     false, 0},
    {4096, 1536, 1000, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true,
     true, false, 0},
    {600, 2048, 1024, DType::bf16, DType::bf16, DType::bf16, Activation::swiglu, false, false,
     false, false, 0},
};

TEST(CudaMatmulSm90, EqualsTheReference) {
  for (const MatmulProblem& p : problems(kSmall, kLarge)) {
    const Tensor want = run(kHost, reference::matmul, p);
    each_kind([&] {
      const auto once = [&] { return run(kThere, cuda::matmul, p); };
      const Tensor got = once();
      EXPECT_LT(worst_difference(got, want), tolerance(p.y, 1e-4)) << p.rows << " " << p.n;
      EXPECT_TRUE(same_bits(again(once), got)) << p.rows << " " << p.n;
      const Spare spare(kOnGpu ? 16 : 2);
      EXPECT_TRUE(same_bits(once(), got)) << p.rows << " " << p.n << ", spared";
    });
  }
}

// Integers are widened exactly: the sums are those of the integers, times the scales.
TEST(CudaMatmulSm90, WeightsInInt8EqualTheReference) {
  constexpr auto b = DType::bf16;
  const std::vector<MatmulProblem> small = {
      {64, 24, 80, b, DType::i8, b, Activation::silu, true, false, false, false, 8},
      {130, 136, 64, b, DType::i8, b, Activation::gelu_tanh, true, true, true, false, 0},
      {200, 520, 208, b, DType::i8, DType::f32, Activation::none, true, true, true, true, 8},
      {150, 72, 400, b, DType::i8, b, Activation::swiglu, false, false, true, false, 16},
      {131, 400, 1168, b, DType::i8, b, Activation::geglu, false, true, false, false, 0},
  };
  std::vector<MatmulProblem> large = kLarge;
  for (MatmulProblem& p : large) p.w = DType::i8, p.k -= p.k % 16;
  for (const MatmulProblem& p : problems(small, large)) {
    const Tensor want = run(kHost, reference::matmul, p);
#if !defined(TESSERA_ON_GPU)
    emulation::warpgroups = true;
#endif
    const auto once = [&] { return run(kThere, cuda::matmul, p); };
    const Tensor got = once();
    EXPECT_LT(worst_difference(got, want), tolerance(p.y, 1e-4)) << p.rows << " " << p.n;
    EXPECT_TRUE(same_bits(again(once), got)) << p.rows << " " << p.n;
#if !defined(TESSERA_ON_GPU)
    emulation::warpgroups = false;
#endif
  }
}

// matmul() of bf16 matrices by such tiles.
template <cuda::Tiles Kind>
void by_tiles(const MatmulArgs& a) {
  const PackedWeight& w = *a.weight;
  const cuda::FinishedProduct p{{.x = a.x,
                                 .w = w.data.raw(),
                                 .dtype = w.dtype,
                                 .rows = a.rows,
                                 .n = w.paired ? 2 * w.n : w.n,
                                 .k = w.k,
                                 .x_stride = a.x_stride},
                                {nullptr, 0, a.rows, w.n, a.epilogue, a.y, a.y_dtype, a.y_stride}};
  cuda::matmul_sm90({&p, 1}, Kind);
}

// Several at the same time: of two streams, of other widths, some with a gate and a residual.
TEST(CudaMatmulSm90, AGroupEqualsItsProductsOneByOne) {
  constexpr auto b = DType::bf16;
  std::vector<MatmulProblem> group = {
      {260, 136, 72, b, b, b, Activation::none, true, false, false, false, 8},
      {130, 264, 72, b, b, b, Activation::none, false, false, false, false, 0},
      {70, 8, 72, b, b, DType::f32, Activation::none, true, true, true, false, 8},
      {260, 520, 72, b, b, b, Activation::none, false, true, true, true, 0},
  };
  if (kOnGpu)
    for (MatmulProblem& p : group) p.rows *= 5, p.n *= 5, p.k = 1000;
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = true;
#endif
  const std::vector<Tensor> alone = [&] {
    std::vector<Tensor> results;
    for (const MatmulProblem& p : group)
      results.push_back(run(kThere, by_tiles<cuda::Tiles::of_128>, p));
    return results;
  }();
  const auto together = [&](size_t first, size_t count) {
    return run_group(kThere, cuda::matmul_group, std::span(group).subspan(first, count));
  };
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 4}, {1, 2}, {3, 1}}) {
    const std::vector<Tensor> got = together(first, count);
    for (size_t i = 0; i < count; ++i)
      EXPECT_LT(worst_difference(got[i], alone[first + i]), tolerance(group[first + i].y, 1e-4))
          << first << " " << i;
    EXPECT_TRUE(same_bits(again([&] { return together(first, count).back(); }), got.back()));
  }
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = false;
#endif
}

TEST(CudaMatmulSm90, AllTilesEqualTheReference) {
  using Kernel = void (*)(const MatmulArgs&);
  constexpr Kernel kernels[] = {by_tiles<cuda::Tiles::of_128>, by_tiles<cuda::Tiles::in_turn_128>,
                                by_tiles<cuda::Tiles::of_192>, by_tiles<cuda::Tiles::of_256>};
  std::vector<MatmulProblem> small = {
      // Every place in shared memory is used again, by the other warpgroup too.
      {260, 328, 1160, DType::bf16, DType::bf16, DType::bf16, Activation::none, true, true, true,
       true, 0},
      {260, 328, 136, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true,
       true, true, 0},
      {129, 200, 136, DType::bf16, DType::bf16, DType::f32, Activation::swiglu, false, false, true,
       false, 8},
  };
  std::vector<MatmulProblem> large = kLarge;
  large.push_back({1537, 1160, 3080, DType::bf16, DType::bf16, DType::bf16, Activation::none, true,
                   true, true, true, 0});
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = true;
#endif
  for (const MatmulProblem& p : problems(small, large)) {
    const Tensor want = run(kHost, reference::matmul, p);
    std::vector<Tensor> got;
    for (const Kernel kernel : kernels) {
      const auto once = [&] { return run(kThere, kernel, p); };
      got.push_back(once());
      EXPECT_LT(worst_difference(got.back(), want), tolerance(p.y, 1e-4)) << got.size();
      EXPECT_TRUE(same_bits(again(once), got.back())) << got.size();
      EXPECT_TRUE(same_bits(got.back(), got.front())) << got.size();  // whichever has a row
    }
  }
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = false;
#endif
}

// Times of an H200 (docs/results/gpu.md): within 4 % of the best of the four.
TEST(CudaMatmulSm90, TheTilesAreThoseThatTookLeastTime) {
  using cuda::Tiles;
  const auto tiles = [](int64_t rows, int64_t columns, int64_t k, bool paired = false) {
    return cuda::best_way({rows, columns, k, paired}, 132).tiles;
  };
  EXPECT_EQ(tiles(333, 1536, 6144), Tiles::library);
  EXPECT_EQ(tiles(1536, 3072, 15360), Tiles::library);
  EXPECT_EQ(tiles(1024, 1536, 1536), Tiles::of_128);
  EXPECT_EQ(tiles(4096, 4608, 1152), Tiles::in_turn_128);
  EXPECT_EQ(tiles(4096, 12288, 15360), Tiles::of_256);
  EXPECT_NE(tiles(64, 64, 64, true), Tiles::library);  // SwiGLU is finished in registers
}

// Queries, keys and values of SD3's two streams: three waves of tiles for six.
TEST(CudaMatmulSm90, FewTilesAreComputedTogether) {
  const cuda::ProductSize image{1024, 1536, 1536}, text{333, 1536, 1536};
  const std::vector<cuda::ProductSize> heads = {image, image, image, text, text, text};
  EXPECT_NE(cuda::group_tiles(heads, 132), cuda::Tiles::library);
  const cuda::ProductSize large{16384, 4096, 4096};  // fills the GPU alone
  EXPECT_LT(cuda::best_way(large, 132).time * 2 * 0.95,
            cuda::best_tiles(std::vector{large, large}, 132).time);
}

#if !defined(TESSERA_ON_GPU)
TEST(CudaMatmulSm90, ARowDoesNotDependOnOthers) {
  MatmulProblem p{
      300,   320,   136, DType::bf16, DType::bf16, DType::bf16, Activation::silu, true, true,
      false, false, 0};
  emulation::warpgroups = true;
  const Tensor all = run(kThere, by_tiles<cuda::Tiles::in_turn_128>, p);
  p.rows = 77;
  EXPECT_TRUE(same_bits(run(kThere, by_tiles<cuda::Tiles::in_turn_128>, p), all.slice(0, 0, 77)));
  emulation::warpgroups = false;
}
#endif

TEST(CudaMatmulSm90, TakesWholeWordsOfBf16AndNotFewRows) {
  alignas(16) static const unsigned char memory[64] = {};
  cuda::LibraryProduct p{
      .x = memory, .w = memory, .dtype = DType::bf16, .rows = 64, .n = 8, .k = 8, .x_stride = 8};
  EXPECT_TRUE(cuda::serves_sm90(p));
  for (auto change :
       {+[](cuda::LibraryProduct& q) { q.rows = 63; }, +[](cuda::LibraryProduct& q) { q.k = 12; },
        +[](cuda::LibraryProduct& q) { q.x_stride = 9; },
        +[](cuda::LibraryProduct& q) { q.x = memory + 8; },
        +[](cuda::LibraryProduct& q) { q.dtype = DType::f32; }}) {
    cuda::LibraryProduct q = p;
    change(q);
    EXPECT_FALSE(cuda::serves_sm90(q));
  }
  EXPECT_LE(cuda::ProductTile<256>::kShared, 227 * 1024);
  EXPECT_LE(cuda::ProductTile<192>::kShared, 227 * 1024);
  EXPECT_LE((cuda::ProductTile<192, true>::kShared), 227 * 1024);
  EXPECT_LE((cuda::ProductTile<256, true>::kShared), 227 * 1024);
  EXPECT_LE(cuda::ProductTile<128>::kShared, 227 * 1024);
}

}  // namespace
}  // namespace tessera::kernels
