#include "comm/inbox.h"

#include <utility>

namespace tessera::comm {

void Inbox::deliver(uint64_t channel, int from, Message message) {
  std::shared_ptr<Gate> gate;
  {
    const std::lock_guard lock(mutex_);
    gate = gate_;
  }
  if (gate && !gate->pass(from, message)) return;
  {
    const std::lock_guard lock(mutex_);
    if (closed_.contains(channel)) return;
    queues_[{channel, from}].push_back(std::move(message));
  }
  arrived_.notify_all();
}

std::optional<Message> Inbox::pop(uint64_t channel, int from) {
  const auto queue = queues_.find({channel, from});
  if (queue == queues_.end() || queue->second.empty()) {
    if (failure_) throw Error(*failure_);  // what arrived before the failure may still be read
    return std::nullopt;
  }
  Message message = std::move(queue->second.front());
  queue->second.pop_front();
  return message;
}

std::optional<Message> Inbox::poll(uint64_t channel, int from) {
  const std::lock_guard lock(mutex_);
  return pop(channel, from);
}

Message Inbox::take(uint64_t channel, int from, const std::function<void()>& expired) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto message = pop(channel, from)) return std::move(*message);
    if (arrived_.wait_for(lock, std::chrono::milliseconds(20)) == std::cv_status::timeout) {
      lock.unlock();
      expired();
      lock.lock();
    }
  }
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
  arrived_.notify_all();
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

void Inbox::close(uint64_t channel) {
  const std::lock_guard lock(mutex_);
  closed_[channel] = true;
  std::erase_if(queues_, [&](const auto& queue) { return queue.first.first == channel; });
}

}  // namespace tessera::comm
