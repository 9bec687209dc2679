#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/mpi/launch.h"

namespace tessera::comm::mpi {
namespace {

TEST(Launched, FollowsWhatMpirunSets) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_FALSE(launched());
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  EXPECT_TRUE(launched());
  for (const char* bad : {"", "0", "-1", "3x", "99999999999999999999", "65537", " 2"}) {
    setenv("OMPI_COMM_WORLD_SIZE", bad, 1);
    EXPECT_THROW(launched(), Error) << bad;
  }
}

}  // namespace
}  // namespace tessera::comm::mpi
