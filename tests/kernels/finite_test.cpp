#include "kernels/finite.h"

#include <gtest/gtest.h>

#include "kernels/odd_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

TEST(AllFinite, FindsWhatIsNoNumberWhereverItIs) {
  each_odd_array([](const tensor::Tensor& x, bool finite) {
    for (Isa isa : available_isas()) {
      int32_t said = -1;
      cpu_table(isa).all_finite({x.raw(), x.dtype(), x.elements(), &said});
      EXPECT_EQ(said, finite);
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
