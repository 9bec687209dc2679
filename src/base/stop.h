#pragma once

#include <stop_token>

namespace tessera::base {

/// Says by which token the work of this thread may be stopped, until the end of its life. Who takes
/// a request binds its token: pools of threads, readers and writers ask it between two pieces.
class BindStop {
 public:
  explicit BindStop(std::stop_token stop);
  ~BindStop();
  BindStop(const BindStop&) = delete;
  BindStop& operator=(const BindStop&) = delete;

 private:
  std::stop_token stop_;
  const std::stop_token* before_;
};

/// The token bound to the calling thread; one that never stops if there is none.
const std::stop_token& current_stop();
/// Throws Error(cancelled) after a stop request on `stop`.
void check_stop(const std::stop_token& stop = current_stop());

}  // namespace tessera::base
