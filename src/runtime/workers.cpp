#include "runtime/workers.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "cluster/ranks.h"

namespace tessera::runtime {
namespace {

int thread_count_of(const RunOptions& options) {
  if (options.threads > 0) return options.threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  // Unless mpirun binds ranks, all ranks of the machine share all cores.
  const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
  const int sharing = bound ? 1 : cluster::Ranks::of(options).on_this_machine();
  return std::max(1, cores / sharing);
}

}  // namespace

RunMeters::RunMeters(size_t count) : ranks(std::max<size_t>(count, 1)) { *this = anew(); }

RunMeters RunMeters::anew() const {
  RunMeters fresh = *this;
  for (Rank& rank : fresh.ranks)
    rank = {std::make_shared<tensor::Meter>(all), std::make_shared<tensor::MemoryTracker>(memory)};
  return fresh;
}

MemoryPeaks peaks_of(const tensor::MemoryTracker& memory) {
  using tensor::MemoryClass;
  return {memory.peak(MemoryClass::weights), memory.peak(MemoryClass::activations),
          memory.peak(MemoryClass::kv), memory.peak(MemoryClass::buffers), memory.peak()};
}

Report::Rank work_of(const tensor::Scope& rank, int64_t sent_bytes) {
  return {peaks_of(*rank.memory), rank.meter->total().flops, sent_bytes};
}

void Workers::start(const RunOptions& options) {
  const int threads = thread_count_of(options);
  const int count = cluster::Ranks::of(options).count_here();
  pool = std::make_unique<base::ThreadPool>(threads);
  for (int r = 0; r < count && count > 1; ++r)
    ranks.push_back(std::make_unique<base::ThreadPool>(std::max(1, threads / count)));
}

tensor::Scope Workers::scope(int rank, const RunMeters* meters) const {
  tensor::Scope scope;
  const bool shared = rank < 0 || ranks.empty();
  const auto place = static_cast<size_t>(shared ? 0 : rank);
  scope.pool = shared ? pool.get() : ranks[place].get();
  scope.assumptions = assumptions;
  if (!meters) return scope;
  scope.meter = rank < 0 ? meters->all : meters->ranks.at(place).work;
  scope.memory = rank < 0 ? meters->memory : meters->ranks.at(place).memory;
  return scope;
}

}  // namespace tessera::runtime
