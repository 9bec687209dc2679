#include "comm/inbox.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace tessera::comm {

using Clock = std::chrono::steady_clock;

void Inbox::deliver(uint64_t channel, int from, Message message) {
  message.arrived = Clock::now();
  const auto bytes = static_cast<uint64_t>(message.data.bytes());
  bool passed = true, twice = false, awaited = false;
  std::shared_ptr<const Listener> listener;
  {
    std::unique_lock lock(mutex_);
    if (const auto gate = gate_; gate && !message.last) {
      lock.unlock();
      passed = gate->pass(from, message);
      lock.lock();
    }
    received_bytes_[from] += bytes;
    if (!passed) {
      accepted_[from] += bytes;
      return;
    }
    Channel& open = channels_[channel];
    Sender& sender = open.senders[from];
    if (message.last) {
      sender.message_count = message.order;
      return let_go(channel);
    }
    ++sender.arrived;
    listener = open.listener;
    if (listener || open.others >= 0) accepted_[from] += bytes;
    if (open.others >= 0) return let_go(channel);
    if (!listener) {
      const uint64_t order = message.order;
      Slot& slot = sender.slots[order];
      twice = slot.message.has_value();
      awaited = slot.awaited;
      if (slot.expected) accepted_[from] += bytes;
      slot.bytes = bytes;
      if (slot.forgotten)
        sender.slots.erase(order);
      else if (!twice)
        slot.message = std::exchange(message, {});
    }
  }
  if (listener) return give(*listener, from, std::move(message));
  if (twice)
    fail(Error(ErrorCode::rank, fmt::format("a message came twice from rank {}; do all ranks run "
                                            "the same version of the program?",
                                            from)));
  if (awaited) changed_.notify_all();
}

// On a transport's thread, without a caller for errors.
void Inbox::give(const Listener& listener, int from, Message message) {
  try {
    listener(from, std::move(message));
  } catch (const Error& e) {
    fail(e);
  } catch (const std::exception& e) {
    fail(Error(ErrorCode::memory, e.what()));
  }
}

void Inbox::listen(uint64_t channel, Listener listener) {
  const auto shared = std::make_shared<const Listener>(std::move(listener));
  std::vector<std::pair<int, Message>> early;
  {
    const std::lock_guard lock(mutex_);
    Channel& open = channels_[channel];
    open.listener = shared;
    for (auto& [from, sender] : open.senders) {
      for (auto& [order, slot] : sender.slots) {
        if (!slot.message) continue;
        accepted_[from] += slot.bytes;
        early.emplace_back(from, std::move(*slot.message));
      }
      sender.slots.clear();
    }
  }
  for (auto& [from, message] : early) give(*shared, from, std::move(message));
}

Inbox::Slot* Inbox::find(uint64_t channel, int from, uint64_t order) {
  const auto open = channels_.find(channel);
  if (open == channels_.end()) return nullptr;
  const auto sender = open->second.senders.find(from);
  if (sender == open->second.senders.end()) return nullptr;
  const auto slot = sender->second.slots.find(order);
  return slot == sender->second.slots.end() ? nullptr : &slot->second;
}

void Inbox::erase(uint64_t channel, int from, uint64_t order) {
  channels_[channel].senders[from].slots.erase(order);
}

void Inbox::expect(uint64_t channel, int from, uint64_t order) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = channels_[channel].senders[from].slots[order];
    slot.expected = true;
    if (slot.message) accepted_[from] += slot.bytes;
    room = slot.message.has_value();
  }
  if (room) changed_.notify_all();
}

bool Inbox::ready(uint64_t channel, int from, uint64_t order) {
  std::shared_ptr<Arrival> arrival;
  {
    const std::lock_guard lock(mutex_);
    const Slot* slot = find(channel, from, order);
    if (!slot || !slot->message) {
      if (failure_) throw Error(*failure_);  // messages before the failure stay readable
      return false;
    }
    arrival = slot->message->arrival;
  }
  return !arrival || arrival->ready();
}

// `expired` is called by the clock, for any number of other messages.
template <class Done>
void Inbox::wait(std::unique_lock<std::mutex>& lock, const std::function<void()>& expired,
                 Done done) {
  constexpr auto kAsk = std::chrono::milliseconds(20);
  auto next = Clock::now() + kAsk;
  while (!done()) {
    if (failure_) throw Error(*failure_);
    if (Clock::now() < next) {
      changed_.wait_until(lock, next);
      continue;
    }
    lock.unlock();
    expired();
    lock.lock();
    next = Clock::now() + kAsk;
  }
}

Message Inbox::take(uint64_t channel, int from, uint64_t order,
                    const std::function<void()>& expired) {
  std::unique_lock lock(mutex_);
  Slot* slot = nullptr;
  wait(lock, expired, [&] {
    slot = find(channel, from, order);
    if (slot && slot->message) return true;
    if (slot) slot->awaited = true;
    return false;
  });
  Message message = std::move(*slot->message);
  erase(channel, from, order);
  return message;
}

void Inbox::forget(uint64_t channel, int from, uint64_t order) {
  const std::lock_guard lock(mutex_);
  Slot* slot = find(channel, from, order);
  if (!slot) return;  // the channel is closed
  if (slot->message)
    erase(channel, from, order);
  else
    slot->forgotten = true;
}

void Inbox::fail(const Error& error) {
  std::shared_ptr<Gate> gate;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = error;
      gate = gate_;
    }
  }
  if (gate) gate->failed(error);
  changed_.notify_all();
}

void Inbox::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void Inbox::guard(const std::shared_ptr<Gate>& gate) {
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    gate_ = gate;
    failure = failure_;
  }
  if (gate && failure) gate->failed(*failure);
}

void Inbox::close(uint64_t channel, int others) {
  {
    const std::lock_guard lock(mutex_);
    Channel& open = channels_[channel];
    for (auto& [from, sender] : open.senders) {
      for (const auto& [order, slot] : sender.slots)
        if (!slot.expected) accepted_[from] += slot.bytes;
      sender.slots.clear();
    }
    open.others = others;
    open.listener = nullptr;
    let_go(channel);
  }
  changed_.notify_all();
}

void Inbox::let_go(uint64_t channel) {
  const Channel& open = channels_[channel];
  const auto through = [](const auto& sender) {
    return sender.second.message_count && *sender.second.message_count == sender.second.arrived;
  };
  if (open.others >= 0 &&
      std::count_if(open.senders.begin(), open.senders.end(), through) >= open.others)
    channels_.erase(channel);
}

uint64_t Inbox::accepted(int from) const {
  const std::lock_guard lock(mutex_);
  const auto it = accepted_.find(from);
  return it == accepted_.end() ? 0 : it->second;
}

uint64_t Inbox::ahead(int from) const {
  const std::lock_guard lock(mutex_);
  const auto came = received_bytes_.find(from), accepted = accepted_.find(from);
  return (came == received_bytes_.end() ? 0 : came->second) -
         (accepted == accepted_.end() ? 0 : accepted->second);
}

void Inbox::await_room(int from, uint64_t limit, const std::function<void()>& expired) {
  std::unique_lock lock(mutex_);
  wait(lock, expired, [&] { return received_bytes_[from] - accepted_[from] <= limit; });
}

size_t Inbox::channels() const {
  const std::lock_guard lock(mutex_);
  return channels_.size();
}

}  // namespace tessera::comm
