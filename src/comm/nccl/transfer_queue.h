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

/// All use of NCCL by a rank: one thread starts transfers, sees their ends and NCCL's errors, and
/// aborts when the world fails. As a gate before the host transport's inbox, it turns each
/// announcement into an arrival and starts the receive at once, so no transfer waits for a
/// request.
class TransferQueue : public Gate {
 public:
  TransferQueue(std::shared_ptr<Transport> host, std::chrono::milliseconds deadline,
                const Functions& nccl);
  ~TransferQueue() override;

  /// Opens the link between two ranks, one of them this; waits for the peer. Before start().
  void open(int from, int to, const UniqueId& id);
  void start();
  /// Announces a message with a device tensor, and sends its elements after the present work of the
  /// calling thread's stream. Waits while too many sends to `to` are under way: a full driver would
  /// stop the thread with the starts.
  void send(int to, uint64_t channel, Message message);
  /// Waits until all ranks are here and all transfers of this rank have ended, or until the world
  /// fails.
  void close();
  /// Aborts transfers under way and ends the thread. Call before the last owner lets go: the owner
  /// may be this thread, during a failure of the world.
  void end();

  /// Sends under way from one rank to another, at most.
  static constexpr int kMostUnderWay = 128;
  /// Multiprocessors left to transfers by kernels: an NCCL block finds no room beside a block with
  /// all registers, and would wait for the end of its kernel.
  static constexpr int kSpared = 16;

  bool pass(int from, Message& message) override;
  void failed(const Error& error) override;

 private:
  struct ArrivalSignal;
  class PendingArrival;
  struct Job {
    int peer = 0;
    tensor::Tensor data;                        // data to send
    std::shared_ptr<void> ready;                // readiness of data
    std::shared_ptr<PendingArrival> arrival{};  // null: a send
    Parcel parcel{};                            // data to receive
  };

  void queue(Job job);
  void work();
  void serve(std::deque<Job>& jobs);
  void start(Job& job);
  void look();
  bool settle(std::vector<int>& sent_counts);
  void cut();
  std::shared_ptr<Link>& link(int from, int to);

  const std::shared_ptr<Transport> host_;
  const std::chrono::milliseconds deadline_;
  const Functions nccl_;
  const std::shared_ptr<tensor::DeviceRuntime> runtime_;
  void* const compute_;                       // the stream of memory from the pool
  std::vector<std::shared_ptr<Link>> links_;  // by (from, to); used by one thread
  Link::Clock::time_point looked_{};

  const std::shared_ptr<ArrivalSignal> signal_;
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
