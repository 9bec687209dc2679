#include "comm/mpi/launch.h"

#include <gtest/gtest.h>

// Worlds of several processes are in tests/mpi.
namespace tessera::comm::mpi {
namespace {

TEST(Launch, NeedsAWayToReportAndToGiveUp) {
  EXPECT_THROW(run({}, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace tessera::comm::mpi
