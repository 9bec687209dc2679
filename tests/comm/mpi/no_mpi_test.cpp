// The behavior of a build without MPI, tested in every build.
#define mpi without_mpi
#include "comm/mpi/no_mpi.cpp"

#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

TEST(NoMpi, SaysWhatToInstall) {
  try {
    without_mpi::run({}, [](Communicator&) { FAIL() << "ran"; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::plan);
    EXPECT_NE(std::string(error.what()).find("libopenmpi-dev"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::comm
