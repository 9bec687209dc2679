#include "kernels/table.h"

#include <gtest/gtest.h>

namespace tessera::kernels {
namespace {

TEST(Table, EveryInstructionSetHasEveryKernelOfTheProducts) {
  for (Isa isa : {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx}) {
    const KernelTable& table = cpu_table(isa);
    EXPECT_NE(table.matmul, nullptr) << name_of(isa);
    EXPECT_NE(table.experts, nullptr) << name_of(isa);
    EXPECT_NE(table.combine, nullptr) << name_of(isa);
  }
}

TEST(Table, DefaultIsTheActiveSet) { EXPECT_EQ(&cpu_table(), &cpu_table(active_isa())); }

}  // namespace
}  // namespace tessera::kernels
