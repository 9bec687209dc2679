#include "server/events.h"

#include <algorithm>
#include <utility>

namespace tessera::server {
namespace {
constexpr size_t kLarge = 4096, kMostLarge = size_t{4} << 20;
constexpr size_t kMostEvents = 20000;
constexpr std::string_view kData = "data: ", kEnd = "\n\n";

// Bytes of a large event; 0 for small events.
size_t large_bytes(const EventLog::Event& event) {
  const size_t bytes = event.data().size();
  return bytes > kLarge ? bytes : 0;
}
}  // namespace

std::string_view EventLog::Event::data() const {
  const std::string_view event_text = *text;
  const size_t at = event_text.find(kData) + kData.size();
  return event_text.substr(at, event_text.size() - at - kEnd.size());
}

void EventLog::add(const std::string& name, const std::string& data, bool last) {
  std::vector<Wake> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ++last_;
    events_.push_back({last_, name, std::make_shared<const std::string>(sse(last_, name, data))});
    large_ += large_bytes(events_.back());
    ended_ = last;
    bound();
    waiting.swap(waiting_);
  }
  for (const Wake& wake : waiting)
    if (const auto waiter = wake.lock()) waiter->wake();
}

void EventLog::bound() {
  for (auto at = events_.begin(); large_ > kMostLarge && at + 1 != events_.end();) {
    const size_t bytes = large_bytes(*at);
    large_ -= bytes;
    at = bytes > 0 ? events_.erase(at) : at + 1;
  }
  while (events_.size() > kMostEvents) {
    large_ -= large_bytes(events_.front());
    events_.pop_front();
  }
}

void EventLog::restore(uint64_t id, const std::string& name, const std::string& data) {
  const std::lock_guard lock(mutex_);
  last_ = id;
  events_.push_back({id, name, std::make_shared<const std::string>(sse(id, name, data))});
  ended_ = true;
}

EventLog::Part EventLog::after(uint64_t after, const Wake& wake, size_t most) {
  const std::lock_guard lock(mutex_);
  Part part;
  for (auto at = std::ranges::upper_bound(events_, after, {}, &Event::id);
       at != events_.end() && part.events.size() < most; ++at)
    part.events.push_back(*at);
  const uint64_t reached = part.events.empty() ? after : part.events.back().id;
  part.ended = ended_ && reached >= last_;
  if (!part.events.empty() || part.ended) return part;
  // Waiters are stored once; expired waiters are dropped.
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
  return text.append(kData).append(data).append(kEnd);
}

}  // namespace tessera::server
