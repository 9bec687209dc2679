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

/// The ranks of a run as this process has them: all of them as threads, one of them as a process
/// that mpirun started, or all of them simulated on meta. Code above asks for what it needs, and
/// never which of the three they are.
class Ranks {
 public:
  static Ranks threads(int size, std::chrono::milliseconds deadline);
  /// `device`: where they compute; those on GPUs have ways of their own between them.
  static Ranks processes(const Processes& all, int size, tensor::Device device);
  static Ranks meta(int size, std::chrono::milliseconds deadline);
  /// Those of the plan of a run that computes on a device.
  static Ranks of(const RunOptions& options, tensor::Device device = tensor::Device::cpu);

  int size() const { return size_; }
  /// Whether this process holds all of them.
  bool all_here() const { return processes_ == nullptr; }
  bool here(int rank) const { return all_here() || rank == first_here_; }
  /// Whether this process holds one of ranks [begin, end).
  bool any_here(int begin, int end) const;
  /// Those of ranks [0, end) that this process holds.
  std::vector<int> mine(int end) const;
  int count_here() const { return all_here() ? size_ : 1; }
  /// Place of a rank among those of this process.
  int place(int rank) const { return rank - first_here_; }
  /// Whether rank 0 is here, which has what a run makes.
  bool first() const { return first_here_ == 0; }
  /// Whether a rank acts for its process: it passes on a stop, and looks at its memory.
  bool speaks(int rank) const { return rank == first_here_; }
  /// Processes of this run that share the memory and cores of this machine.
  int on_this_machine() const;
  /// Bytes that this process needs for its ranks, by what each holds.
  int64_t bytes_here(const std::vector<int64_t>& ranks) const;

  /// Runs those of this process, each in its scope, and returns when all of them have ended. `rank`
  /// gets its world; null where there is one rank, which then hears `stop` anywhere. Several agree
  /// on a stop themselves. Where one fails, all end the request with its error.
  void run(const std::function<tensor::Scope(int rank)>& scope, const std::stop_token& stop,
           const std::function<void(comm::Communicator* world)>& rank) const;
  /// Runs `part` once for each process, where there are several, as a part of a request.
  void between_processes(const std::function<void(comm::Communicator& ranks)>& part) const;

  /// Throws Error(rank) on all of them where processes do not run the same (agree.h).
  void agree(const std::function<Terms()>& terms) const;
  /// Does `work` on each process: where it throws on some, all throw what the lowest of these does,
  /// by its name, and stay together. `request`: its ranks, within one. `does`: "decodes".
  void all_or_none(const char* does, const std::function<void()>& work,
                   comm::Communicator* request = nullptr) const;
  /// What the process with rank 0 says.
  bool word(bool mine) const;
  /// The largest of what processes say, and the sum.
  int64_t most(int64_t mine) const;
  int64_t sum(int64_t mine) const;
  /// Adds what the ranks of other processes report to that of rank 0. All of them call it.
  void gather(comm::Communicator* world, Report& report) const;
  /// What this process has sent so far; nothing where it holds all ranks.
  comm::Ledger::Entries sent() const;

 private:
  Ranks(int size, std::chrono::milliseconds deadline) : size_(size), deadline_(deadline) {}
  comm::Communicator& world() const;  // as it carries tensors of the device
  friend class ExclusiveRequest;

  int size_ = 1, first_here_ = 0;
  std::chrono::milliseconds deadline_{};
  const Processes* processes_ = nullptr;
  bool on_gpus_ = false, meta_ = false;
};

/// Ranks that run() would start for these options: as many as there are processes, or as the plan
/// says.
int started_ranks(const RunOptions& options);

/// One request at a time, of all models whose ranks are the same processes: they would answer two
/// in other orders. Throws Error(usage) when a callback, or another thread, asks while they work.
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
