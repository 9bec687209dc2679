#include "kernels/table.h"

#include <gtest/gtest.h>

#include "kernels/experts.h"

namespace tessera::kernels {
namespace {

TEST(Table, EveryInstructionSetHasEveryKernelOfTheProducts) {
  for (Isa isa : {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx}) {
    const KernelTable& table = cpu_table(isa);
    EXPECT_NE(table.matmul, nullptr) << name_of(isa);
    EXPECT_NE(table.experts, nullptr) << name_of(isa);
    ASSERT_NE(table.expert_tiles, nullptr) << name_of(isa);
    EXPECT_NE(table.expert_tiles->up, nullptr) << name_of(isa);
    EXPECT_NE(table.combine, nullptr) << name_of(isa);
    EXPECT_NE(table.copy, nullptr) << name_of(isa);
    EXPECT_NE(table.move_rows, nullptr) << name_of(isa);
  }
}

TEST(Table, TensorsOnTheCpuNeverAskForTheKernelsOfAGpu) {
  EXPECT_EQ(&table_of(tensor::Device::cpu, Isa::reference), &cpu_table(Isa::reference));
  EXPECT_EQ(&table_of(tensor::Device::cpu), &cpu_table());
}

TEST(Table, AStandInServesTensorsOfADevice) {
  replace_cuda_table(&cpu_table(Isa::reference));
  EXPECT_EQ(&table_of(tensor::Device::cuda), &cpu_table(Isa::reference));
  replace_cuda_table(nullptr);
}

TEST(Table, DefaultIsTheActiveSet) { EXPECT_EQ(&cpu_table(), &cpu_table(active_isa())); }

}  // namespace
}  // namespace tessera::kernels
