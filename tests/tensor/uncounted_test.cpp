#include "tensor/uncounted.h"

#include <gtest/gtest.h>

#include <memory>

#include "tensor/tensor.h"

namespace tessera::tensor {
namespace {

TEST(Uncounted, NeitherMemoryNorWorkOrWorkAlone) {
  Scope counting;
  counting.memory = std::make_shared<MemoryTracker>();
  counting.meter = std::make_shared<Meter>();
  const BindScope bind(counting);
  {
    const Uncounted here;
    const Tensor x = Tensor::empty({4}, DType::f32);
    EXPECT_EQ(current_scope().meter, nullptr);
    EXPECT_EQ(counting.memory->peak(), 0);
  }
  {
    const Uncounted here(Counts::work);
    const Tensor x = Tensor::empty({4}, DType::f32);
    EXPECT_EQ(current_scope().meter, counting.meter);
    EXPECT_EQ(counting.memory->peak(), 0);
  }
  const Tensor x = Tensor::empty({4}, DType::f32);
  EXPECT_EQ(counting.memory->peak(), 16) << "it counts again behind it";
}

}  // namespace
}  // namespace tessera::tensor
