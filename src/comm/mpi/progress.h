#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/inbox.h"
#include "comm/mpi/fate.h"
#include "comm/mpi/peers.h"
#include "comm/mpi/wire.h"

namespace tessera::comm::mpi {

/// All that is done with MPI: one thread of the process runs start(), serve() and finish(); other
/// threads hand messages over and read what came. Messages move while the rank computes.
class Progress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Progress();
  ~Progress();

  // By the thread that owns MPI.
  /// Starts MPI and finds the other ranks.
  void start();
  /// Moves messages until end() was called and all ranks have ended, or `grace` after the world has
  /// failed. Throws Error(rank) when MPI fails.
  void serve(std::chrono::milliseconds deadline, std::chrono::milliseconds grace);
  /// Ends MPI.
  void finish();

  // By any thread, after start().
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Inbox& inbox() { return inbox_; }
  Fate& fate() { return *fate_; }
  void advance() { ++count_; }
  uint64_t progress(int rank) const {
    return rank == rank_ ? count_.load() : peers_->progress(rank);
  }
  void send(int to, uint64_t channel, Message message);
  /// This rank fails, and tells the others.
  void fail(const Error& error);
  /// This rank has ended its work.
  void end();
  /// MPI failed, maybe for a rank that is lost: leaves some time to see that first.
  void broken(const Error& error);
  /// After a failure: whether this rank is the one that reports it.
  bool speaks() const {
    const auto failure = fate_->failure();
    if (!failure->lost) return fate_->first_to_fail();
    return speaker_ == rank_ && failure->origin != rank_;
  }
  /// Looks after the other ranks for up to `limit`, and fails the world when one is lost.
  /// `terminated`: when mpirun sent SIGTERM, or nothing. By one thread that does not wait for MPI.
  void look_after(std::chrono::microseconds limit, std::optional<Time> terminated);

 private:
  struct Flight;
  struct Outgoing {
    int to;
    uint64_t channel;
    Message message;
  };

  void tell(const Notice& notice);
  void post(int to, const Notice& notice);
  void post(Outgoing& out);
  void post_parts(const std::shared_ptr<Flight>& flight, char* bytes, int64_t size, int peer,
                  bool receive);
  bool send_queued();
  bool take_headers();
  bool take_notices();
  bool complete();
  void deliver(int from);
  void heartbeat(Time now);
  void lose(int rank, const char* why, Time since);
  void idle();
  bool over(std::chrono::milliseconds grace) const;
  bool adopt(const Error& error, int origin, bool lost, Time since);
  void declare(const Error& error, int origin, bool lost, Time since);

  int rank_ = 0, ranks_ = 1;
  MPI_Comm world_ = MPI_COMM_NULL;
  Inbox inbox_;
  Names names_;
  std::unique_ptr<Fate> fate_;
  std::unique_ptr<Peers> peers_;
  std::atomic<uint64_t> count_{0};
  std::atomic<bool> ending_{false};
  std::atomic<int> speaker_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Outgoing> queued_;  // under mutex_
  std::deque<Notice> notices_;   // under mutex_; for all

  std::vector<MPI_Request> requests_;
  std::vector<std::shared_ptr<Flight>> flights_;               // by request
  std::vector<int> indices_;                                   // of Testsome
  std::vector<std::deque<std::shared_ptr<Flight>>> incoming_;  // by sender, in order
  std::vector<std::shared_ptr<Flight>> beats_;                 // by rank: the last heartbeat
  Time next_beat_;
  Time looked_, awake_;  // of look_after(): its last call, and since when it is called steadily
  std::atomic<std::chrono::milliseconds> deadline_{};
};

}  // namespace tessera::comm::mpi
