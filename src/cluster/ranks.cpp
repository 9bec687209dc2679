#include "cluster/ranks.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "base/stop.h"
#include "cluster/gather_reports.h"
#include "cluster/processes.h"
#include "comm/collectives.h"
#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "tensor/run_watcher.h"

namespace tessera::cluster {

Ranks Ranks::threads(int size, std::chrono::milliseconds deadline) { return {size, deadline}; }

Ranks Ranks::processes(const Processes& processes, int size, tensor::Device device) {
  Ranks ranks(size, {});
  ranks.processes_ = &processes;
  ranks.first_here_ = processes.rank();
  ranks.on_gpus_ = device != tensor::Device::cpu && device != tensor::Device::meta;
  return ranks;
}

Ranks Ranks::meta(int size, std::chrono::milliseconds deadline) {
  Ranks ranks(size, deadline);
  ranks.meta_ = true;
  return ranks;
}

Ranks Ranks::of(const RunOptions& options, tensor::Device device) {
  const int size = options.plan.ranks();
  if (options.processes) return processes(*options.processes, size, device);
  return device == tensor::Device::meta ? meta(size, options.comm_timeout)
                                        : threads(size, options.comm_timeout);
}

bool Ranks::any_here(int begin, int end) const {
  return begin < end && (all_here() || (first_here_ >= begin && first_here_ < end));
}

std::vector<int> Ranks::mine(int end) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; ++rank)
    if (here(rank)) ranks.push_back(rank);
  return ranks;
}

int Ranks::on_this_machine() const {
  return processes_ ? std::max(1, processes_->on_this_machine()) : 1;
}

int64_t Ranks::bytes_here(const std::vector<int64_t>& ranks) const {
  return all_here() ? std::accumulate(ranks.begin(), ranks.end(), int64_t{0})
                    : *std::max_element(ranks.begin(), ranks.end());
}

comm::Communicator& Ranks::world() const {
  const Processes::State& state = processes_->state();
  return on_gpus_ && state.gpus ? *state.gpus : *state.world;
}

void Ranks::run(const std::function<tensor::Scope(int rank)>& scope, const std::stop_token& stop,
                const std::function<void(comm::Communicator* world)>& rank) const {
  tensor::RunWatcher* const watcher = tensor::run_watcher();
  const auto run_rank = [&](comm::Communicator* ranks) {
    const int number = ranks ? ranks->rank() : 0;
    const tensor::BindScope bind(scope(number));
    const tensor::BindRunWatcher watched(watcher && !meta_ ? watcher->of_real_rank(number)
                                                           : watcher);
    const base::BindStop halt(ranks ? std::stop_token() : stop);
    rank(ranks);
  };
  if (size_ == 1) return run_rank(nullptr);
  if (processes_) {
    comm::Communicator& ranks = world();
    if (&ranks != processes_->state().world) return run_rank(&ranks);
    return run_collectively(ranks, [&](comm::Communicator& request) { run_rank(&request); });
  }
  if (!meta_)
    return comm::threads::run(size_, deadline_,
                              [&](comm::Communicator& ranks) { run_rank(&ranks); });
  std::vector<tensor::Scope> scopes;
  for (int r = 0; r < size_; ++r) scopes.push_back(scope(r));
  comm::simulated::run(scopes, deadline_, [&](comm::Communicator& ranks) { rank(&ranks); });
}

void Ranks::between_processes(const std::function<void(comm::Communicator& ranks)>& part) const {
  if (processes_) run_collectively(*processes_->state().world, part);
}

void Ranks::require_same(const std::function<RunFingerprint()>& terms) const {
  if (processes_) cluster::require_same(*processes_->state().world, terms);
}

void Ranks::all_or_none(const char* action, const std::function<void()>& work,
                        comm::Communicator* request) const {
  if (!processes_) return work();
  const auto named_work = [&] {
    try {
      work();
    } catch (const std::exception& e) {
      throw named(e, first_here_, action);
    }
  };
  comm::Communicator& group = request ? *request : *processes_->state().world;
  if (const auto error = comm::first_error(group, named_work, comm::kControl))
    throw SharedError(*error);
}

bool Ranks::word(bool value) const {
  return processes_ ? comm::agreed(*processes_->state().world, 0, value, comm::kControl) : value;
}

int64_t Ranks::most(int64_t value) const {
  if (processes_) comm::all_reduce_max(*processes_->state().world, {&value, 1}, comm::kControl);
  return value;
}

int64_t Ranks::sum(int64_t value) const {
  int64_t sums[] = {value};
  if (processes_ && size_ > 1) comm::all_reduce(world(), sums, {"report", -1});
  return sums[0];
}

void Ranks::gather(comm::Communicator* world, Report& report) const {
  if (world && processes_) gather_reports(*world, report);
}

comm::Ledger::Entries Ranks::sent() const {
  return processes_ ? world().ledger().entries() : comm::Ledger::Entries();
}

int started_ranks(const RunOptions& options) {
  return options.processes ? options.processes->ranks() : options.plan.ranks();
}

ExclusiveRequest::ExclusiveRequest(const Ranks& ranks, const std::string& model) {
  if (ranks.all_here()) return;
  std::atomic<bool>& working = ranks.processes_->state().working;
  require(!working.exchange(true), ErrorCode::usage,
          "'{}' stands on ranks that are processes, and these work on a request already: they take "
          "one at a time, of all models together; wait for its end",
          model);
  working_ = &working;
}

ExclusiveRequest::~ExclusiveRequest() {
  if (working_) *working_ = false;
}

}  // namespace tessera::cluster
