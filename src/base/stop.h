#pragma once

#include <stop_token>

namespace tessera::base {

/// Binds the stop token for work of this thread, until destruction. The entry point of a request
/// binds the request's token; thread pools, readers and writers check the token between pieces of
/// work.
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

/// The token bound to the calling thread; without a binding a token that never stops.
const std::stop_token& current_stop();
/// Throws Error(cancelled) after a stop request on `stop`.
void check_stop(const std::stop_token& stop = current_stop());

}  // namespace tessera::base
