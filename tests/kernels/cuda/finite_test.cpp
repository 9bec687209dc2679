#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/finite.h"
#include "kernels/odd_values.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/finite.cu"
#endif

namespace tessera::kernels {
namespace {

bool finite_there(const void* x, tensor::DType dtype, int64_t count) {
  const tensor::Tensor said = kThere(std::vector<int32_t>{-1});
  cuda::all_finite({x, dtype, count, static_cast<int32_t*>(said.raw())});
  return *static_cast<int32_t*>(here(said).raw()) != 0;
}

TEST(CudaAllFinite, FindsWhatIsNoNumberWhereverItIs) {
  each_odd_array([](const tensor::Tensor& x, bool finite) {
    const tensor::Tensor there = kThere(x);
    EXPECT_EQ(finite_there(there.raw(), x.dtype(), x.elements()), finite);
    if (x.elements() < 9) return;  // not at a word's begin
    const tensor::Tensor part = there.slice(0, 1, x.elements());
    int32_t want = -1;
    reference::all_finite({x.slice(0, 1, x.elements()).raw(), x.dtype(), part.elements(), &want});
    EXPECT_EQ(finite_there(part.raw(), x.dtype(), part.elements()), want != 0);
  });
}

}  // namespace
}  // namespace tessera::kernels
