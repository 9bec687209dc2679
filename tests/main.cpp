#include <gtest/gtest.h>

#include "temporary_folder.h"

int main(int argc, char** argv) {
  const tessera::TemporaryFolder folder;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
