#include "tensor/work_count.h"

namespace tessera::tensor {
namespace {

thread_local WorkCount* bound = nullptr;  // signals progress of a thread, never affects results

}  // namespace

WorkCount* work_count() { return bound; }

void count_work() {
  if (bound) bound->fetch_add(1, std::memory_order_relaxed);
}

BindWorkCount::BindWorkCount(WorkCount* count) : before_(bound) { bound = count; }
BindWorkCount::~BindWorkCount() { bound = before_; }

}  // namespace tessera::tensor
