#include "server/events.h"

#include <algorithm>
#include <utility>

namespace tessera::server {
namespace {
constexpr size_t kLarge = 4096, kMostLarge = size_t{4} << 20;
constexpr size_t kMostEvents = 20000;
constexpr size_t kPart = 16;  // events that are handed on at once
}  // namespace

void EventLog::add(const std::string& name, const std::string& data, bool last) {
  std::vector<Wake> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    events_.push_back({++last_, name, data});
    if (data.size() > kLarge) large_ += data.size();
    ended_ = last;
    bound();
    waiting.swap(waiting_);
  }
  for (const Wake& wake : waiting)
    if (const auto waiter = wake.lock()) waiter->wake();
}

void EventLog::bound() {
  for (auto at = events_.begin(); large_ > kMostLarge && at + 1 != events_.end();) {
    const bool large = at->data.size() > kLarge;
    if (large) large_ -= at->data.size();
    at = large ? events_.erase(at) : at + 1;
  }
  while (events_.size() > kMostEvents) {
    if (events_.front().data.size() > kLarge) large_ -= events_.front().data.size();
    events_.pop_front();
  }
}

void EventLog::restore(uint64_t id, const std::string& name, const std::string& data) {
  const std::lock_guard lock(mutex_);
  last_ = id;
  events_.push_back({id, name, data});
  ended_ = true;
}

EventLog::Part EventLog::after(uint64_t after, const Wake& wake) {
  const std::lock_guard lock(mutex_);
  Part part;
  for (const Event& event : events_) {
    if (event.id <= after) continue;
    part.events.push_back(event);
    if (part.events.size() == kPart) break;
  }
  const uint64_t reached = part.events.empty() ? after : part.events.back().id;
  part.ended = ended_ && reached >= last_;
  if (!part.events.empty() || part.ended) return part;
  // Who asks again waits once, and who left no more.
  std::erase_if(waiting_, [&](const Wake& other) {
    return other.expired() || (!other.owner_before(wake) && !wake.owner_before(other));
  });
  waiting_.push_back(wake);
  return part;
}

uint64_t EventLog::last_id() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::string sse(uint64_t id, const std::string& name, const std::string& data) {
  std::string text;
  if (id > 0) text += "id: " + std::to_string(id) + "\n";
  if (!name.empty()) text += "event: " + name + "\n";
  return text + "data: " + data + "\n\n";
}

}  // namespace tessera::server
