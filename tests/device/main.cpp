#include <gtest/gtest.h>

#include <cstdlib>

// The emulated GPU runs the reference kernels; so must what it is compared with.
int main(int argc, char** argv) {
  ::setenv("TESSERA_ISA", "reference", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
