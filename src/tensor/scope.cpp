#include "tensor/scope.h"

#include "tensor/work_count.h"

namespace tessera::tensor {
namespace {

const Scope kEmpty;
thread_local const Scope* bound = &kEmpty;  // accounting and speed only, see Scope

}  // namespace

void Meter::add(const char* op, double flops, double bytes) {
  if (whole_) whole_->add(op, flops, bytes);
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[op];
  ++entry.calls;
  entry.flops += flops;
  entry.bytes += bytes;
}

void Meter::add(const std::map<std::string, Entry>& entries) {
  if (whole_) whole_->add(entries);
  const std::lock_guard lock(mutex_);
  for (const auto& [op, more] : entries) {
    Entry& entry = entries_[op];
    entry.calls += more.calls;
    entry.flops += more.flops;
    entry.bytes += more.bytes;
  }
}

std::map<std::string, Meter::Entry> Meter::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

Meter::Entry Meter::total() const {
  Entry sum;
  for (const auto& [op, entry] : entries()) {
    sum.calls += entry.calls;
    sum.flops += entry.flops;
    sum.bytes += entry.bytes;
  }
  return sum;
}

const Scope& current_scope() { return *bound; }

BindScope::BindScope(const Scope& scope) : scope_(scope), before_(bound) { bound = &scope_; }
BindScope::~BindScope() { bound = before_; }

// A task may run on a thread of the pool without a work count of its own.
void parallel_tasks(int64_t count, const std::function<void(int64_t task)>& task) {
  WorkCount* const work = work_count();
  const auto counting_task = [&](int64_t i) {
    task(i);
    if (work) work->fetch_add(1, std::memory_order_relaxed);
  };
  if (base::ThreadPool* pool = bound->pool) return pool->run(count, counting_task);
  for (int64_t i = 0; i < count; ++i) counting_task(i);
}

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  WorkCount* const work = work_count();
  const auto task = [&](int64_t begin, int64_t end) {
    body(begin, end);
    if (work) work->fetch_add(1, std::memory_order_relaxed);
  };
  if (base::ThreadPool* pool = bound->pool) return pool->parallel_for(count, grain, task);
  if (count > 0) task(0, count);
}

int thread_count() { return bound->pool ? bound->pool->threads() : 1; }

}  // namespace tessera::tensor
