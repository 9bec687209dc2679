#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include <random>

#include "kernels/closeness.h"
#include "kernels/experts_layer.h"
#include "tessera/error.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/experts.cu"
#endif

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
  for (const auto& size :
       problems<std::array<int, 5>>({{0, 32, 32, 2, 1},
                                     {1, 8, 8, 1, 1},
                                     {5, 40, 24, 3, 2},
                                     {9, 37, 19, 3, 2},
                                     {70, 136, 72, 4, 2},
                                     {205, 32, 40, 2, 1},
                                     {330, 72, 136, 2, 1}},
                                    {{500, 256, 192, 16, 4}, {1000, 128, 256, 8, 2}}))
    for (DType weights : {DType::f32, DType::bf16, DType::i8})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const int tokens = size[0], hidden = size[1], inner = size[2], experts = size[3],
                  slots = size[4];
        const Layer layer(hidden, inner, experts, weights);
        const Tensor wide = random_tensor({tokens, hidden + 8}, dtype, 4);
        const auto ids = random_ids(int64_t{tokens} * slots, experts);
        const Tensor want = layer.run(kHost, reference::experts, wide.slice(1, 0, hidden), ids);
        const double most = dtype == DType::bf16     ? 4e-3
                            : weights == DType::bf16 ? 2e-3  // inner values round the other way
                            : weights == DType::i8   ? 5e-5
                                                     : 3e-6;
        each_kind([&] {
          const Tensor x = kThere(wide).slice(1, 0, hidden);
          EXPECT_LT(relative_l2(layer.run(kThere, cuda::experts, x, ids), want), most)
              << tokens << " " << hidden << " " << tensor::name_of(weights) << " "
              << tensor::name_of(dtype);
        });
      }
}

TEST(CudaExperts, ARowDoesNotDependOnOthersOrOnTheOrderOfThreads) {
  each_kind([] {
    for (DType weights : {DType::bf16, DType::f32, DType::i8}) {
      const Layer layer(48, 40, 3, weights);
      for (int64_t tokens : problems<int64_t>({150, 330}, {3000})) {
        const Tensor x = random_tensor({tokens, 48}, DType::bf16, 4);
        const auto ids = random_ids(2 * tokens, 3);
        const auto of_all = [&] { return layer.run(kThere, cuda::experts, x, ids); };
        const Tensor all = of_all();
        const Tensor some = layer.run(kThere, cuda::experts, x.slice(0, 90, tokens),
                                      {ids.begin() + 180, ids.end()});
        EXPECT_TRUE(same_bits(some, all.slice(0, 180, 2 * tokens)));
        EXPECT_TRUE(same_bits(again(of_all), all));
      }
    }
  });
}

TEST(CudaExperts, RefusesBiasesAndActivationsThatItDoesNotHave) {
  const Tensor x = random_tensor({3, 8}, DType::f32, 4);
  for (const auto& [act, biased] : {std::pair{Activation::relu, false}, {Activation::swiglu, true}})
    EXPECT_THROW(Layer(8, 8, 1, DType::f32, Isa::reference, act, biased)
                     .run(kThere, cuda::experts, x, {0, 0, 0}),
                 Error);
}

TEST(CudaCombine, AddsSlotsInOrder) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const auto& size : {std::array<int, 3>{0, 8, 2}, {5, 37, 3}, {7, 64, 8}})
      for (bool with_shared : {false, true}) {
        const int tokens = size[0], hidden = size[1], slots = size[2];
        const Tensor rows = random_tensor({tokens * slots, hidden}, dtype, 1);
        const Tensor weights = random_tensor({tokens, slots}, DType::f32, 2);
        const Tensor shared = random_tensor({tokens, hidden}, dtype, 3);
        const auto run = [&](const Where& at, void (*kernel)(const CombineArgs&)) {
          const Tensor y = Tensor::zeros({tokens, hidden}, dtype, at.device);
          const Tensor r = at(rows), w = at(weights), s = at(shared);
          kernel({.rows = r.raw(),
                  .dtype = dtype,
                  .row_stride = hidden,
                  .tokens = tokens,
                  .slots = slots,
                  .hidden = hidden,
                  .weights = w.data<float>(),
                  .shared = with_shared ? s.raw() : nullptr,
                  .shared_stride = hidden,
                  .y = y.raw()});
          return here(y);
        };
        EXPECT_LT(worst_difference(run(kThere, cuda::combine), run(kHost, reference::combine)),
                  tolerance(dtype, 1e-6));
      }
}

}  // namespace
}  // namespace tessera::kernels
