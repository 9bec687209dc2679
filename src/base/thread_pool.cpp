#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fail.h"

namespace tessera::base {
namespace {

thread_local bool inside_task = false;  // nested jobs run on their own thread alone

constexpr int kSpins = 2000;

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) {
    for (int i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    wake.notify_all();
    for (auto& worker : workers) worker.join();
  }

  void take_tasks() {
    inside_task = true;
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      try {
        (*task)(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
    inside_task = false;
  }

  void work() {
    for (uint64_t seen = 0;;) {
      for (int spin = 0; spin < kSpins && epoch.load() == seen; ++spin) std::this_thread::yield();
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return ending || epoch.load() != seen; });
        if (ending) return;
        seen = epoch.load();
      }
      take_tasks();
      if (busy.fetch_sub(1) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void run(int64_t tasks, const std::function<void(int64_t)>& f) {
    const std::lock_guard one_job(jobs);
    {
      const std::lock_guard lock(mutex);
      task = &f;
      count = tasks;
      next = 0;
      error = nullptr;
      busy = static_cast<int>(workers.size());
      epoch.fetch_add(1);
    }
    wake.notify_all();
    take_tasks();
    for (int spin = 0; spin < kSpins && busy.load() != 0; ++spin) std::this_thread::yield();
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return busy.load() == 0; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::vector<std::thread> workers;
  std::mutex jobs, mutex;
  std::condition_variable wake, done;
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  int64_t count = 0;
  const std::function<void(int64_t)>* task = nullptr;
  std::exception_ptr error;
  bool ending = false;
};

ThreadPool::ThreadPool(int threads) {
  require(threads >= 1 && threads <= 4096, ErrorCode::usage,
          "{} threads were asked for; give a number from 1 to 4096", threads);
  state_ = std::make_unique<State>(threads);
}
ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t count, const std::function<void(int64_t)>& task) {
  if (inside_task || count <= 1 || threads() == 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  state_->run(count, task);
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t most = std::max<int64_t>(count / std::max<int64_t>(grain, 1), 1);
  const int64_t parts = std::min<int64_t>(most, int64_t{4} * threads());
  run(parts, [&](int64_t i) { body(count * i / parts, count * (i + 1) / parts); });
}

void ThreadPool::gang(int n, const std::function<void(int)>& body) {
  std::mutex guard;
  std::exception_ptr first;
  auto guarded = [&](int actor) {
    try {
      body(actor);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> actors;
  for (int i = 1; i < n; ++i) actors.emplace_back(guarded, i);
  if (n > 0) guarded(0);
  for (auto& actor : actors) actor.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::base
