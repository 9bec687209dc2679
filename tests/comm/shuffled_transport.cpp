#include "shuffled_transport.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "transport_over.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

class Shuffled : public TransportOver {
 public:
  Shuffled(std::shared_ptr<Transport> below, std::chrono::microseconds longest)
      : TransportOver(std::move(below)),
        longest_(longest),
        chance_(static_cast<unsigned>(TransportOver::rank()) + 1),
        thread_([this] { work(); }) {}
  ~Shuffled() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Shuffled(const Shuffled&) = delete;
  Shuffled& operator=(const Shuffled&) = delete;

  void send(int to, uint64_t channel, Message message) override {
    {
      const std::lock_guard lock(mutex_);
      const auto delay = std::uniform_int_distribution<int64_t>(0, longest_.count())(chance_);
      held_.emplace(Clock::now() + std::chrono::microseconds(delay),
                    Held{to, channel, std::move(message)});
    }
    wake_.notify_one();
  }

 private:
  struct Held {
    int to;
    uint64_t channel;
    Message message;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (!ended_ || !held_.empty()) {
      if (held_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const auto first = held_.begin();
      if (first->first > Clock::now()) {
        wake_.wait_until(lock, Clock::time_point(first->first));
        continue;
      }
      Held held = std::move(first->second);
      held_.erase(first);
      lock.unlock();
      TransportOver::send(held.to, held.channel, std::move(held.message));
      lock.lock();
    }
  }

  const std::chrono::microseconds longest_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937 chance_;                          // under mutex_
  std::multimap<Clock::time_point, Held> held_;  // under mutex_
  bool ended_ = false;                           // under mutex_
  std::thread thread_;
};

}  // namespace

std::shared_ptr<Transport> shuffled(std::shared_ptr<Transport> below,
                                    std::chrono::microseconds longest) {
  return std::make_shared<Shuffled>(std::move(below), longest);
}

}  // namespace tessera::comm
