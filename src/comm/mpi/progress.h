#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/inbox.h"
#include "comm/mpi/fate.h"
#include "comm/mpi/part_queue.h"
#include "comm/mpi/peers.h"
#include "comm/mpi/wire.h"
#include "tensor/work_count.h"

namespace tessera::comm::mpi {

/// All use of MPI: one thread of the process runs start(), serve() and finish(); other threads hand
/// messages over and read received ones. Messages move during computation.
class Progress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Head start of ranks with SIGTERM: mpirun of Open MPI 5 kills 240 ms later, mpirun of Open MPI
  /// 4 a second later.
  static constexpr std::chrono::milliseconds kHurry{120};
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// `deadline`: the longest silence of a rank.
  explicit Progress(std::chrono::milliseconds deadline);
  ~Progress();

  // By the thread that owns MPI.
  /// Starts MPI and finds the other ranks.
  void start();
  /// Moves messages until end() was called and all ranks have ended, or `grace` after the world has
  /// failed. Throws Error(rank) when MPI fails.
  void serve(std::chrono::milliseconds grace);
  /// Ends MPI.
  void finish();

  // By any thread, after start().
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Inbox& inbox() { return inbox_; }
  Fate& fate() { return *fate_; }
  void advance();
  tensor::WorkCount& count() { return count_; }
  uint64_t progress(int rank) const {
    return rank == rank_ ? count_.load() : peers_->progress(rank);
  }
  void send(int to, uint64_t channel, Message message);
  /// Waits while more than `limit` bytes are under way to a rank or unexpected there.
  void await_room(int to, uint64_t limit, const std::function<void()>& expired);
  void wait_for(int rank);
  int waits_for(int rank) const {
    return rank == rank_ ? waits_for_.load()
                         : peers_->waits_for(rank, std::chrono::steady_clock::now());
  }
  /// Fails this rank, and tells the others.
  void fail(const Error& error);
  /// Ends the work of this rank.
  void end();
  /// MPI failed, perhaps because of a lost rank: allows some time to detect the loss first.
  void broken(const Error& error);
  /// After a failure: this rank has reported to the user.
  void set_reported();
  /// After a failure: true if this rank should report.
  bool speaks() const;
  /// After a failure: true if no rank may think so. Ranks without contact may blame each
  /// other.
  bool unheard() const;
  /// Watches the other ranks for up to `limit`, and fails the world for a lost one. `terminated`:
  /// the time of mpirun's SIGTERM, or nothing. For one thread without waits for MPI.
  void look_after(std::chrono::microseconds limit, std::optional<Time> terminated);

 private:
  struct Flight;
  /// A request for a part.
  struct Part {
    std::shared_ptr<Flight> flight;
    int64_t bytes = 0;
  };
  /// Messages to and from another rank.
  struct Lane {
    std::map<uint64_t, std::shared_ptr<Flight>> cut;  // by number: sent in parts
    PartQueue parts;
    uint64_t cut_out = 0, cut_in = 0;            // messages in parts, so far
    uint64_t reported_bytes = 0;                 // bytes reported to the rank as accepted
    std::shared_ptr<Flight> beat;                // the last heartbeat
    std::atomic<uint64_t> sent{0}, accepted{0};  // bytes
  };
  struct Outgoing {
    int to;
    uint64_t channel;
    Message message;
  };

  void tell(const Notice& notice);
  void post(int to, const Notice& notice);
  void post(Outgoing& out);
  void post_part(const std::shared_ptr<Flight>& flight, int64_t begin, int64_t size, int tag);
  void post_body(const std::shared_ptr<Flight>& flight);
  void post_next(Lane& lane);
  bool send_queued();
  bool take_headers();
  bool take_notices();
  bool complete();
  void keep(MPI_Request request, const std::shared_ptr<Flight>& flight, int64_t bytes);
  void part_ended(const Part& part);
  void land(const std::shared_ptr<Flight>& flight);
  void note(const Notice& notice, int from);
  void heartbeat(Time now);
  void look_at_signal(Time now, Time terminated);
  void lose(int rank, const char* reason, Time since);
  void idle();
  bool over(std::chrono::milliseconds grace) const;
  bool adopt(const Error& error, ErrorCode code, int origin, bool lost, Time since);
  void declare(const Error& error, int origin, bool lost, Time since);

  int rank_ = 0, ranks_ = 1;
  MPI_Comm world_ = MPI_COMM_NULL;
  Inbox inbox_;
  Names names_;
  std::unique_ptr<Fate> fate_;
  std::unique_ptr<Peers> peers_;
  const std::chrono::milliseconds deadline_;
  tensor::WorkCount count_{0};
  std::atomic<int> waits_for_{-1};
  std::atomic<int64_t> due_{kNever};  // the next look of MPI's thread in advance()
  std::atomic<bool> ending_{false};
  std::atomic<int> speaker_{0};

  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::deque<Outgoing> queued_;  // under mutex_
  std::deque<Notice> notices_;   // under mutex_; for all

  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;   // by request
  std::vector<int> indices_;  // for Testsome
  std::vector<Lane> lanes_;   // by rank
  Time next_beat_, next_credit_;
  Time moved_;              // the last movement of a message
  Time looked_, awake_;     // look_after(): its last call, and the begin of steady calls
  bool signalled_ = false;  // look_after(): SIGTERM was reported
};

}  // namespace tessera::comm::mpi
