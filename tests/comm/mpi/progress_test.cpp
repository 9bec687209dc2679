#include <gtest/gtest.h>

#include "comm/mpi/launch.h"

// A world of a single process without mpirun; worlds of several are in tests/mpi.
namespace tessera::comm::mpi {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

TEST(Progress, AWorldOfOneRunsOnceAndEndsWithItsOwnError) {
  Options options;
  std::string reported;
  options.report = [&](const Error& error) { reported = error.what(); };
  options.give_up = [](const Error& error) { FAIL() << error.what(); };
  const auto body = [](Communicator& world) {
    EXPECT_EQ(world.size(), 1);
    world.send(0, Tensor::zeros({3}, DType::bf16), {"self", 1});
    EXPECT_EQ(world.receive(0, {"self", 1}).wait().shape(), tensor::Shape{3});
    throw Error(ErrorCode::model, "weight 'x' is damaged");
  };
  try {
    run(options, body);
    FAIL();
  } catch (const EchoError& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
  }
  EXPECT_EQ(reported, "weight 'x' is damaged");
  EXPECT_THROW(run(options, body), Error);
}

}  // namespace
}  // namespace tessera::comm::mpi
