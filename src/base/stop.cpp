#include "base/stop.h"

#include <utility>

#include "base/fail.h"

namespace tessera::base {
namespace {

const std::stop_token kNone;
thread_local const std::stop_token* bound = &kNone;  // ends work, never affects results

}  // namespace

BindStop::BindStop(std::stop_token stop) : stop_(std::move(stop)), before_(bound) {
  bound = &stop_;
}
BindStop::~BindStop() { bound = before_; }

const std::stop_token& current_stop() { return *bound; }

void check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) fail(ErrorCode::cancelled, "stopped before this part was done");
}

}  // namespace tessera::base
