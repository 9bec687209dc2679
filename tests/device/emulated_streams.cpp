#include "device/emulated_streams.h"

#include <chrono>
#include <random>
#include <utility>

namespace tessera::device {

void EmulatedEvent::reach() {
  {
    const std::lock_guard lock(mutex_);
    reached_ = true;
  }
  changed_.notify_all();
}

bool EmulatedEvent::reached() {
  const std::lock_guard lock(mutex_);
  return reached_;
}

void EmulatedEvent::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

EmulatedStream::EmulatedStream() : thread_([this] { run(); }) {}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EmulatedStream::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::shared_ptr<EmulatedEvent> EmulatedStream::record() {
  auto event = std::make_shared<EmulatedEvent>();
  enqueue([event] { event->reach(); });
  return event;
}

void EmulatedStream::run() {
  std::minstd_rand draw(17);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    const auto next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    if (draw() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 400));
    next();
    lock.lock();
  }
}

}  // namespace tessera::device
