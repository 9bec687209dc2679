#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the sources below are compiled with.
#include <gtest/gtest.h>

#include <random>

#include "kernels/closeness.h"
#include "kernels/cuda/experts.cu"
#include "kernels/experts_layer.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

std::vector<int32_t> random_ids(int64_t count, int experts) {
  std::mt19937 generator(9);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(generator() % 6 == 0 ? -1
                                       : static_cast<int32_t>(generator() % unsigned(experts)));
  return ids;
}

TEST(CudaExperts, EqualTheReference) {
  for (auto [tokens, hidden, inner, experts, slots] : {std::array<int, 5>{0, 32, 32, 2, 1},
                                                       {1, 8, 8, 1, 1},
                                                       {5, 40, 24, 3, 2},
                                                       {9, 37, 19, 3, 2},
                                                       {70, 136, 72, 4, 2},
                                                       {205, 32, 40, 2, 1}})
    for (DType weights : {DType::f32, DType::bf16, DType::i8})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const Layer layer(hidden, inner, experts, weights);
        const Tensor x = random_tensor({tokens, hidden + 8}, dtype, 4).slice(1, 0, hidden);
        const auto ids = random_ids(int64_t{tokens} * slots, experts);
        const Tensor got = layer.run(emulated::experts, x, ids);
        const Tensor want = layer.run(reference::experts, x, ids);
        const double most = dtype == DType::bf16     ? 4e-3
                            : weights == DType::bf16 ? 2e-3  // inner values round the other way
                            : weights == DType::i8   ? 5e-5
                                                     : 3e-6;
        EXPECT_LT(relative_l2(got, want), most)
            << tokens << " " << hidden << " " << tensor::name_of(weights) << " "
            << tensor::name_of(dtype);
      }
}

TEST(CudaExperts, ARowDoesNotDependOnOthersOrOnTheOrderOfThreads) {
  for (DType weights : {DType::bf16, DType::f32, DType::i8}) {
    const Layer layer(48, 40, 3, weights);
    const Tensor x = random_tensor({150, 48}, DType::bf16, 4);
    const auto ids = random_ids(300, 3);
    const Tensor all = layer.run(emulated::experts, x, ids);
    const Tensor some =
        layer.run(emulated::experts, x.slice(0, 90, 150), {ids.begin() + 180, ids.end()});
    EXPECT_TRUE(same_bits(some, all.slice(0, 180, 300)));
    emulation::backwards = true;
    EXPECT_TRUE(same_bits(layer.run(emulated::experts, x, ids), all));
    emulation::backwards = false;
  }
}

TEST(CudaCombine, AddsSlotsInOrder) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [tokens, hidden, slots] : {std::array<int, 3>{0, 8, 2}, {5, 37, 3}, {7, 64, 8}})
      for (bool with_shared : {false, true}) {
        const Tensor rows = random_tensor({tokens * slots, hidden}, dtype, 1);
        const Tensor weights = random_tensor({tokens, slots}, DType::f32, 2);
        const Tensor shared = random_tensor({tokens, hidden}, dtype, 3);
        const auto run = [&](void (*kernel)(const CombineArgs&)) {
          const Tensor y = Tensor::zeros({tokens, hidden}, dtype);
          kernel({.rows = rows.raw(),
                  .dtype = dtype,
                  .row_stride = hidden,
                  .tokens = tokens,
                  .slots = slots,
                  .hidden = hidden,
                  .weights = weights.data<float>(),
                  .shared = with_shared ? shared.raw() : nullptr,
                  .shared_stride = hidden,
                  .y = y.raw()});
          return y;
        };
        EXPECT_LT(worst_difference(run(emulated::combine), run(reference::combine)),
                  tolerance(dtype, 1e-6));
      }
}

}  // namespace
}  // namespace tessera::kernels
