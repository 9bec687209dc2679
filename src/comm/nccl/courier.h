#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/nccl/link.h"
#include "comm/nccl/parcel.h"
#include "comm/transport.h"

namespace tessera::comm::nccl {

/// All that a rank does with NCCL: one thread starts its transfers, sees their ends and NCCL's
/// errors, and aborts when the world fails. It stands before the inbox of the host transport, where
/// it turns each announcement into an arrival and starts its receive at once, so that no transfer
/// waits for somebody to ask for it.
class Courier : public Gate {
 public:
  Courier(std::shared_ptr<Transport> host, std::chrono::milliseconds deadline,
          const Functions& nccl);
  ~Courier() override;

  /// Opens the link between two ranks, one of them this; waits for the other. Before start().
  void open(int from, int to, const UniqueId& id);
  void start();
  /// Announces a message with a tensor of the device, and starts to send its elements once what the
  /// calling thread's stream was given so far is done. Waits while too many are under way to `to`:
  /// a driver that has no room for more would stop the thread that starts them.
  void send(int to, uint64_t channel, Message message);
  /// Waits until all ranks have come here and all transfers of this one have ended, or until the
  /// world fails.
  void close();
  /// Aborts what is under way and ends the thread. To be called before the last owner lets go: that
  /// may be this thread, while it fails the world.
  void end();

  /// Sends under way from one rank to another, at most.
  static constexpr int kMostUnderWay = 128;
  /// Multiprocessors that kernels leave to transfers while some are under way: a block of NCCL
  /// finds no room beside one that has all registers, and would wait for the end of its kernel.
  static constexpr int kSpared = 16;

  bool pass(int from, Message& message) override;
  void failed(const Error& error) override;

 private:
  struct Dock;
  class Landing;
  struct Job {
    int peer = 0;
    tensor::Tensor data;                 // what is sent
    std::shared_ptr<void> ready;         // of data
    std::shared_ptr<Landing> landing{};  // null: a send
    Parcel parcel{};                     // what arrives
  };

  void queue(Job job);
  void work();
  void serve(std::deque<Job>& jobs);
  void start(Job& job);
  void look();
  bool settle(std::vector<int>& sent);
  void cut();
  std::shared_ptr<Link>& link(int from, int to);

  const std::shared_ptr<Transport> host_;
  const std::chrono::milliseconds deadline_;
  const Functions nccl_;
  const std::shared_ptr<tensor::DeviceRuntime> runtime_;
  void* const compute_;                       // the stream that memory from the pool belongs to
  std::vector<std::shared_ptr<Link>> links_;  // by (from, to); used by one thread
  Link::Clock::time_point looked_{};

  const std::shared_ptr<Dock> dock_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_, room_;
  std::deque<Job> jobs_;        // under mutex_
  std::vector<int> under_way_;  // under mutex_: sends to each rank
  bool busy_ = false;           // under mutex_: jobs or transfers are under way
  bool broken_ = false;         // under mutex_
  bool ended_ = false;          // under mutex_
  int farewells_ = 0;           // under mutex_
  std::thread thread_;
};

}  // namespace tessera::comm::nccl
