#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::device {

/// A place in a stream, reached once.
class EmulatedEvent : public std::enable_shared_from_this<EmulatedEvent> {
 public:
  void reach();
  bool reached();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

/// A stream of an emulated GPU: a thread runs work in order, some of it with a small delay, so code
/// that relies on luck fails. Ends after all work is done.
class EmulatedStream {
 public:
  EmulatedStream();
  ~EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;
  void enqueue(std::function<void()> work);
  std::shared_ptr<EmulatedEvent> record();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // under mutex_
  bool ending_ = false;                     // under mutex_
  std::thread thread_;
};

}  // namespace tessera::device
