#include "server/exchange.h"

#include <utility>

#include "server/sockets.h"

namespace tessera::server {

bool Exchange::sleep() {
  const std::lock_guard lock(mutex_);
  if (ending_ || std::exchange(woken_, false) || !connection_) return false;
  MHD_suspend_connection(connection_);
  asleep_ = true;
  return true;
}

void Exchange::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  if (!std::exchange(asleep_, false) || !connection_) return;
  woken_ = false;
  MHD_resume_connection(connection_);
}

void Exchange::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake();
}

bool Exchange::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

void Exchange::forget() {
  const std::lock_guard lock(mutex_);
  connection_ = nullptr;
}

bool Exchange::abandoned() const {
  const std::lock_guard lock(mutex_);
  if (!asleep_ || !connection_) return false;
  const auto* info = MHD_get_connection_info(connection_, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info && left(info->connect_fd);
}

void Exchange::beat() {
  {
    const std::lock_guard lock(mutex_);
    if (!asleep_) return;
    beat_ = true;
  }
  wake();
}

bool Exchange::take_beat() {
  const std::lock_guard lock(mutex_);
  return std::exchange(beat_, false);
}

}  // namespace tessera::server
