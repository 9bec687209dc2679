#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "cluster/agree.h"
#include "comm/communicator.h"
#include "tensor/scope.h"
#include "tessera/report.h"
#include "tessera/request.h"

namespace tessera::cluster {

/// The ranks of a run in this process: all as threads, one as a process of
/// mpirun, or all simulated on meta. Callers do not need to know the
/// difference.
class Ranks {
 public:
  static Ranks threads(int size, std::chrono::milliseconds deadline);
  /// `device`: of computation; GPUs have connections of their own.
  static Ranks processes(const Processes& processes, int size, tensor::Device device);
  static Ranks meta(int size, std::chrono::milliseconds deadline);
  /// The ranks of a run's plan on a device.
  static Ranks of(const RunOptions& options, tensor::Device device = tensor::Device::cpu);

  int size() const { return size_; }
  /// True if this process holds all ranks.
  bool all_here() const { return processes_ == nullptr; }
  bool here(int rank) const { return all_here() || rank == first_here_; }
  /// True if this process holds one of ranks [begin, end).
  bool any_here(int begin, int end) const;
  /// Ranks of [0, end) in this process.
  std::vector<int> mine(int end) const;
  int count_here() const { return all_here() ? size_ : 1; }
  /// Index of a rank in this process.
  int place(int rank) const { return rank - first_here_; }
  /// True if rank 0 is here, with the results.
  bool first() const { return first_here_ == 0; }
  /// True if a rank acts for its process: passes on a stop, and checks memory.
  bool speaks(int rank) const { return rank == first_here_; }
  /// Processes of this run on this machine, with shared memory and cores.
  int on_this_machine() const;
  /// Bytes of this process for its ranks, from each rank's need.
  int64_t bytes_here(const std::vector<int64_t>& ranks) const;

  /// Runs the ranks of this process, each in its scope, and returns when all have ended. `rank`
  /// receives its world; null for a single rank, which then sees `stop` anywhere. Several ranks
  /// agree on a stop. After a failure of any rank, all end the request with its error.
  void run(const std::function<tensor::Scope(int rank)>& scope, const std::stop_token& stop,
           const std::function<void(comm::Communicator* world)>& rank) const;
  /// Runs `part` once for each process, if there are several, as a part of a request.
  void between_processes(const std::function<void(comm::Communicator& ranks)>& part) const;

  /// Throws Error(rank) on all processes with different terms (agree.h).
  void require_same(const std::function<RunFingerprint()>& terms) const;
  /// Does `work` on each process: after errors, all throw the error of the lowest, by number, and
  /// stay together. `request`: its ranks, within a request. `action`: "decodes".
  void all_or_none(const char* action, const std::function<void()>& work,
                   comm::Communicator* request = nullptr) const;
  /// The word of the process with rank 0.
  bool word(bool value) const;
  /// The largest value of all processes, and the sum.
  int64_t most(int64_t value) const;
  int64_t sum(int64_t value) const;
  /// Adds other processes' reports to rank 0's. All processes call.
  void gather(comm::Communicator* world, Report& report) const;
  /// Messages of this process so far; empty if it holds all ranks.
  comm::Ledger::Entries sent() const;

 private:
  Ranks(int size, std::chrono::milliseconds deadline) : size_(size), deadline_(deadline) {}
  comm::Communicator& world() const;  // for tensors of the device
  friend class ExclusiveRequest;

  int size_ = 1, first_here_ = 0;
  std::chrono::milliseconds deadline_{};
  const Processes* processes_ = nullptr;
  bool on_gpus_ = false, meta_ = false;
};

/// Ranks to start for these options: the number of processes, or the
/// plan's.
int started_ranks(const RunOptions& options);

/// A single request at a time for all models over the same processes, whose order could differ.
/// Throws Error(usage) for a second request, from a callback or another thread.
class ExclusiveRequest {
 public:
  ExclusiveRequest(const Ranks& ranks, const std::string& model);
  ~ExclusiveRequest();
  ExclusiveRequest(const ExclusiveRequest&) = delete;
  ExclusiveRequest& operator=(const ExclusiveRequest&) = delete;

 private:
  std::atomic<bool>* working_ = nullptr;
};

}  // namespace tessera::cluster
