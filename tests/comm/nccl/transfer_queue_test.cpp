#include "comm/nccl/transfer_queue.h"

#include <gtest/gtest.h>

#include "../scripted_transport.h"
#include "device/emulated_nccl.h"

// For couriers of several ranks see launch_test.cpp.
namespace tessera::comm::nccl {
namespace {

using namespace std::chrono_literals;
using tensor::Device;
using tensor::DType;
using tensor::Tensor;

struct Desk {
  device::EmulatedDevice gpu;
  device::EmulatedNccl nccl{gpu};
  /// Two ranks: this is the first, and the other never sends.
  std::shared_ptr<ScriptedTransport> host = std::make_shared<ScriptedTransport>(2);
  std::shared_ptr<TransferQueue> transfer_queue =
      std::make_shared<TransferQueue>(host, 10s, device::EmulatedNccl::functions());
  Desk() { host->inbox().guard(transfer_queue); }
  ~Desk() {
    host->inbox().guard(nullptr);
    transfer_queue->end();
  }
  Message announced(const tensor::Shape& shape) {
    Message message{{"x", 3}, Tensor::empty(shape, DType::f32)};
    message.order = next;
    host->inbox().deliver(5, 1, describe(message));
    return host->inbox().take(5, 1, next++, [] {});
  }
  uint64_t next = 0;
};

TEST(TransferQueue, MessagesOfTheHostPassUnchanged) {
  Desk desk;
  const Tensor x = Tensor::zeros({3}, DType::i64);
  desk.host->inbox().deliver(5, 1, {{"x", -1}, x});
  const Message got = desk.host->inbox().take(5, 1, 0, [] {});
  EXPECT_EQ(got.data.raw(), x.raw());
  EXPECT_EQ(got.arrival, nullptr);
}

TEST(TransferQueue, AnAnnouncementBecomesAnArrival) {
  Desk desk;
  const Message got = desk.announced({0, 4});
  EXPECT_EQ(got.tag.site, 3);
  EXPECT_FALSE(got.data.defined());
  EXPECT_FALSE(got.arrival->ready()) << "the courier has not begun";
  desk.transfer_queue->start();
  const Tensor none = got.arrival->wait([] { FAIL() << "it lasts too long"; });
  EXPECT_EQ(none.shape(), (tensor::Shape{0, 4}));
  EXPECT_EQ(none.device(), Device::cuda);
  EXPECT_EQ(desk.nccl.transfers(), 0);
}

TEST(TransferQueue, AWaitHasALimit) {
  Desk desk;
  const Message got = desk.announced({4});
  EXPECT_THROW(got.arrival->wait([] { throw Error(ErrorCode::rank, "too long"); }), Error);
}

TEST(TransferQueue, FailuresEndWaitsThatWereAndThatCome) {
  Desk desk;
  const Message before = desk.announced({4});
  desk.host->fail_all(Error(ErrorCode::rank, "rank 1 was lost"));
  const Message after = desk.announced({4});
  for (const auto& arrival : {before.arrival, after.arrival}) {
    EXPECT_TRUE(arrival->ready());
    try {
      arrival->wait([] {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 1 was lost");
    }
  }
  desk.transfer_queue->close();  // does not wait for an absent rank
}

TEST(TransferQueue, WhatItCannotDoFailsTheWorld) {
  Desk desk;
  desk.transfer_queue->start();
  desk.transfer_queue->send(1, 5, {{"x", 3}, Tensor::zeros({10}, DType::f32, Device::cuda)});
  EXPECT_EQ(desk.host->sent.size(), 1u);
  const auto limit = std::chrono::steady_clock::now() + 10s;
  EXPECT_THROW(desk.host->inbox().take(5, 1, 0,
                                       [&] {
                                         if (std::chrono::steady_clock::now() > limit) FAIL();
                                       }),
               Error)
      << "the link to rank 1 was never opened";
}

}  // namespace
}  // namespace tessera::comm::nccl
