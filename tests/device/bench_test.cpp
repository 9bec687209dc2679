#include "device/leg.h"
#include "study/bench_lines.h"

namespace tessera::device {
namespace {

using tensor::Device;

TEST(BenchOnGpu, MeasuresTheSameRowsAsOnTheCpu) {
  const auto want = study::lines_of(study::bench_rows);
  const Gpu gpu;
  EXPECT_EQ(study::lines_of(study::bench_rows, Device::cuda), want);
  gpu.expect_kernels(100);
}

#if defined(TESSERA_ON_GPU)  // the reference kernels would take long
TEST(BenchOnGpu, MeasuresTheSameProductsAsOnTheCpu) {
  const auto want = study::lines_of(study::bench_products);
  EXPECT_EQ(study::lines_of(study::bench_products, Device::cuda), want);
}
#endif

}  // namespace
}  // namespace tessera::device
