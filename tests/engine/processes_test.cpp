#include "tessera/processes.h"

#include <gtest/gtest.h>

#include <cstdlib>

// Runs of several processes are in tests/mpi.
namespace tessera {
namespace {

TEST(Processes, KnowsWhetherMpirunStartedIt) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_FALSE(started_by_mpirun());
  setenv("OMPI_COMM_WORLD_SIZE", "many", 1);
  EXPECT_THROW(started_by_mpirun(), Error);
}

TEST(Processes, NeedWaysToReportAndToGiveUp) {
  EXPECT_THROW(run_processes({}, [](const Processes&) {}), Error);
}

}  // namespace
}  // namespace tessera
