#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fail.h"
#include "base/stop.h"

namespace tessera::base {
namespace {

thread_local bool inside_task = false;  // nested jobs run on their own thread alone

// Workers spin for this time in case the next job follows at once. The limit is a time, because on
// a busy machine a single yield may take milliseconds.
constexpr auto kAwake = std::chrono::microseconds(50);

template <class Ready>
void wait_awake(Ready ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  const auto end = std::chrono::steady_clock::now() + kAwake;
  while (!ready() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// On the caller's thread.
void run_alone(int64_t count, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < count; ++i) {
    check_stop();
    task(i);
  }
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) {
    for (int i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
      epoch.fetch_add(1);
    }
    wake.notify_all();
    for (auto& worker : workers) worker.join();
  }

  void take_tasks() {
    const BindStop bind(*stop);  // long tasks check the token, too
    inside_task = true;
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      try {
        check_stop();
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
    for (uint64_t last_epoch = 0;;) {
      wait_awake([&] { return epoch.load() != last_epoch; });
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return ending || epoch.load() != last_epoch; });
        if (ending) return;
        last_epoch = epoch.load();
        if (!open) continue;
        active.fetch_add(1);
      }
      take_tasks();
      const std::lock_guard lock(mutex);
      if (active.fetch_sub(1) == 1) done.notify_one();
    }
  }

  // If a worker wakes too late, it finds the job closed: no thread waits for it.
  void run(int64_t tasks, const std::function<void(int64_t)>& f) {
    // If the pool is busy, the calling thread computes its job alone and does not queue.
    const std::unique_lock one_job(jobs, std::try_to_lock);
    if (!one_job) return run_alone(tasks, f);
    {
      const std::lock_guard lock(mutex);
      task = &f;
      stop = &current_stop();
      count = tasks;
      next = 0;
      error = nullptr;
      open = true;
      epoch.fetch_add(1);
    }
    wake.notify_all();
    take_tasks();
    {
      const std::lock_guard lock(mutex);
      open = false;
    }
    wait_awake([&] { return active.load() == 0; });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return active.load() == 0; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::vector<std::thread> workers;
  std::mutex jobs, mutex;
  std::condition_variable wake, done;
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> active{0};  // workers inside the job
  int64_t count = 0;
  const std::function<void(int64_t)>* task = nullptr;
  const std::stop_token* stop = nullptr;  // token of the thread with the current job
  std::exception_ptr error;
  bool open = false;  // workers may join the job
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
  if (inside_task || count <= 1 || threads() == 1)
    run_alone(count, task);
  else
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
  auto run_actor = [&](int actor) {
    try {
      body(actor);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> actors;
  for (int i = 1; i < n; ++i) actors.emplace_back(run_actor, i);
  if (n > 0) run_actor(0);
  for (auto& actor : actors) actor.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::base
