#include "comm/nccl/link.h"

#include <gtest/gtest.h>

#include <thread>

#include "device/emulated_nccl.h"
#include "tessera/error.h"

namespace tessera::comm::nccl {
namespace {

using namespace std::chrono_literals;
using device::EmulatedDevice;
using device::EmulatedNccl;
using tensor::Device;
using tensor::Tensor;

std::shared_ptr<tensor::DeviceRuntime> runtime() {
  return {tensor::device_pool(), &tensor::device_pool()->runtime()};
}

/// Both ends of a link.
struct Pair {
  explicit Pair(std::chrono::milliseconds limit = 10s) : deadline(limit) {
    UniqueId id{};
    nccl.get_unique_id(&id);
    std::thread other([&] { in.open(id); });
    out.open(id);
    other.join();
  }
  Functions nccl = EmulatedNccl::functions();
  std::chrono::milliseconds deadline;
  Link out{nccl, runtime(), 1, Link::Way::out, deadline},
      in{nccl, runtime(), 0, Link::Way::in, deadline};
};

Tensor numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return Tensor::from(values, {count}).to(Device::cuda);
}

TEST(Link, MovesTensorsAndKeepsThemUntilTheyAreThere) {
  EmulatedDevice gpu;
  EmulatedNccl nccl(gpu);
  {
    Pair pair;
    EXPECT_EQ(nccl.transfers(), 1) << "the first byte of an open link";
    const int64_t live = gpu.pool().use().live;
    Tensor sent = numbers(1000);
    const auto ready = runtime()->record(nullptr);
    const auto left = pair.out.move(sent, ready);
    sent = {};
    EXPECT_EQ(pair.out.settle(), 0);
    EXPECT_TRUE(pair.out.busy());
    EXPECT_FALSE(runtime()->done(left.get())) << "nobody receives yet";
    EXPECT_GT(gpu.pool().use().live, live) << "the link keeps what it moves";
    const Tensor got = Tensor::empty({1000}, tensor::DType::f32, Device::cuda);
    runtime()->wait(nullptr, pair.in.move(got, ready).get());
    EXPECT_EQ(got.to_floats()[999], 999);
    while (pair.out.busy() || pair.in.busy()) {
      pair.out.settle();
      pair.in.settle();
    }
  }
  EXPECT_EQ(gpu.pool().use().live, 0);
  EXPECT_EQ(nccl.open_ends(), 0);
  EXPECT_EQ(nccl.misuses(), 0);
}

TEST(Link, AnAbortEndsWhatHangs) {
  EmulatedDevice gpu;
  EmulatedNccl nccl(gpu);
  Pair pair;
  const auto done = pair.in.move(numbers(10), runtime()->record(nullptr));
  pair.in.cut();
  runtime()->wait(nullptr, done.get());
  EXPECT_THROW(pair.in.move(numbers(10), runtime()->record(nullptr)), Error);
}

TEST(Link, ATransferThatStandsStillIsAnErrorAfterTheDeadline) {
  EmulatedDevice gpu;
  EmulatedNccl nccl(gpu);
  Pair pair(1s);
  pair.in.look(1);
  std::this_thread::sleep_for(1200ms);
  EXPECT_NO_THROW(pair.in.look(1)) << "nothing is under way";
  pair.in.move(numbers(10), runtime()->record(nullptr));
  EXPECT_NO_THROW(pair.in.look(1));
  std::this_thread::sleep_for(1200ms);
  EXPECT_NO_THROW(pair.in.look(2)) << "the ranks get on";
  std::this_thread::sleep_for(1200ms);
  EXPECT_THROW(pair.in.look(2), Error);
}

TEST(Link, APeerThatNeverOpensIsAnErrorAfterTheDeadline) {
  EmulatedDevice gpu;
  EmulatedNccl nccl(gpu);
  const Functions functions = EmulatedNccl::functions();
  UniqueId id{};
  functions.get_unique_id(&id);
  {
    Link alone(functions, runtime(), 1, Link::Way::out, 50ms);
    try {
      alone.open(id);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::rank);
      EXPECT_NE(std::string(error.what()).find("with rank 1 has not ended for 0.1 s"),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(nccl.open_ends(), 0);
}

TEST(Link, TellsWhatNcclSays) {
  EmulatedDevice gpu;
  EmulatedNccl nccl(gpu);
  Pair pair;
  nccl.report(6);
  try {
    pair.out.look(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank);
    EXPECT_NE(std::string(error.what()).find("rank 1 failed: emulated error"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::comm::nccl
