#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "temporary_folder.h"

// The emulated GPU runs the reference kernels, so the CPU must run them for comparison, too.
int main(int argc, char** argv) {
  const tessera::TemporaryFolder folder;
  const char* const how = std::getenv("TESSERA_DEVICE_TEST");
  if (how == nullptr || std::string(how) != "apart") ::setenv("TESSERA_ISA", "reference", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
