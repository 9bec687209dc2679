#include "comm/mpi/orphan.h"

#include <gtest/gtest.h>

namespace tessera::comm::mpi {
namespace {

// For behavior under mpirun see tests/mpi/lost_rank_test.py, test_killed_mpirun.
TEST(Orphan, IsNobodyWhoNeverHadMpirun) {
  outlive_mpirun();
  EXPECT_FALSE(orphaned_since());
}

}  // namespace
}  // namespace tessera::comm::mpi
