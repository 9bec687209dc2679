#include "server/exchange.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/sockets.h"

namespace tessera::server {
namespace {

bool is_plain(std::string_view target) {
  return target.find("%00") == std::string_view::npos &&
         std::ranges::none_of(target, [](unsigned char c) { return c <= 0x20 || c == 0x7f; });
}

}  // namespace

Exchange::Exchange(MHD_Connection* connection, const char* url)
    : target(std::string_view(url).size()), plain_target(is_plain(url)), connection_(connection) {}

Exchange::~Exchange() {
  if (file >= 0) ::close(file);
}

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

Exchange::Work Exchange::begin_work() {
  const std::lock_guard lock(mutex_);
  const Work before = work_;
  if (before != Work::done) work_ = before == Work::none ? Work::running : Work::again;
  return before;
}

Exchange::Work Exchange::end_work(bool done) {
  {
    const std::lock_guard lock(mutex_);
    if (!connection_) return work_ = Work::none;
    if (!done && work_ == Work::again) {
      work_ = Work::running;
      return Work::again;
    }
    work_ = done ? Work::done : Work::none;
  }
  if (done) wake();
  return Work::done;
}

bool Exchange::forget() {
  const std::lock_guard lock(mutex_);
  connection_ = nullptr;
  return work_ == Work::running || work_ == Work::again;
}

bool Exchange::abandoned() const {
  const std::lock_guard lock(mutex_);
  if (!asleep_ || !connection_) return false;
  const auto* info = MHD_get_connection_info(connection_, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info && peer_closed(info->connect_fd);
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
