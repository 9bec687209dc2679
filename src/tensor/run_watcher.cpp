#include "tensor/run_watcher.h"

#include <algorithm>

#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

thread_local RunWatcher* bound = nullptr;  // observes only, see RunWatcher

}  // namespace

RunWatcher* run_watcher() { return bound; }

BindRunWatcher::BindRunWatcher(RunWatcher* watcher) : before_(bound) { bound = watcher; }
BindRunWatcher::~BindRunWatcher() { bound = before_; }

void watch_part(const char* name, int number) {
  if (bound) bound->part(name, number);
}

bool counts_ops() { return bound != nullptr || current_scope().meter != nullptr; }

void count_op(const char* kind, double flops, double bytes, const OpSize& size) {
  if (Meter* const meter = current_scope().meter.get()) meter->add(kind, flops, bytes);
  if (bound) bound->op(kind, flops, bytes, size);
}

OpSize op_size(const Tensor& x) {
  const int64_t columns = x.rank() > 0 ? std::max<int64_t>(x.size(-1), 1) : 1;
  return {x.elements() / columns, columns, 0, x.dtype()};
}

}  // namespace tessera::tensor
