#include "server/log_lines.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace tessera::server {
namespace {

constexpr int kPollMs = 50;
constexpr size_t kPart = 4096;  // a pipe that poll() reports ready accepts this many bytes
constexpr auto kFarewell = std::chrono::milliseconds(500);

}  // namespace

LogLines::LogLines(int descriptor) : descriptor_(descriptor), writer_([this] { write_lines(); }) {}

LogLines::~LogLines() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

void LogLines::add(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (lines_.empty() && !writes_ && write_at_once(line + "\n")) return;
    if (lines_.size() >= kMostLines) {
      ++dropped_;
      return;
    }
    lines_.push_back(std::move(line));
  }
  changed_.notify_one();
}

void LogLines::write_lines() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !lines_.empty(); });
    if (lines_.empty()) return;
    std::string text = std::move(lines_.front()) + "\n";
    lines_.pop_front();
    if (lines_.empty() && dropped_ > 0) {
      text += fmt::format("{} lines of the log were dropped: nobody read them\n", dropped_);
      dropped_ = 0;
    }
    writes_ = true;
    lock.unlock();
    const bool written = write(text);
    lock.lock();
    writes_ = false;
    if (!written) return;
  }
}

// Fast path: the reader has room for a short line. False: nothing was written.
bool LogLines::write_at_once(const std::string& text) const {
  pollfd ready{descriptor_, POLLOUT, 0};
  if (text.size() > kPart || poll(&ready, 1, 0) <= 0 || ready.revents != POLLOUT) return false;
  return ::write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// False if the log ends first, or the reader is gone.
bool LogLines::write(const std::string& text) {
  std::chrono::steady_clock::time_point last{};
  for (size_t at = 0; at < text.size();) {
    pollfd ready{descriptor_, POLLOUT, 0};
    const bool any = poll(&ready, 1, kPollMs) > 0;
    if (any && (ready.revents & (POLLERR | POLLNVAL)) != 0) return false;
    if (!any || (ready.revents & POLLOUT) == 0) {
      const auto now = std::chrono::steady_clock::now();
      const std::lock_guard lock(mutex_);
      if (ends_ && last == std::chrono::steady_clock::time_point{}) last = now + kFarewell;
      if (ends_ && now >= last) return false;
      continue;
    }
    const ssize_t count = ::write(descriptor_, text.data() + at, std::min(kPart, text.size() - at));
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    at += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  return true;
}

}  // namespace tessera::server
