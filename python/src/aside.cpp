#include "aside.h"

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace tessera::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kBetweenSignals{20};

// The worker leaves questions here for the calling thread, and reports the end of the work.
struct Desk {
  std::mutex mutex;
  std::condition_variable changed;
  const std::function<void()>* question = nullptr;
  bool done = false;

  void ask(const std::function<void()>& function) {
    std::unique_lock lock(mutex);
    question = &function;
    changed.notify_all();
    changed.wait(lock, [&] { return question == nullptr; });
  }
  void answered() {
    const std::lock_guard lock(mutex);
    question = nullptr;
    changed.notify_all();
  }
};

// Returns the exception that Python raises during an answer or at a signal.
std::exception_ptr raised_by(const std::function<void()>* question) {
  const nb::gil_scoped_acquire gil;
  try {
    if (question) (*question)();
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Answers questions until the work is done. Returns the first exception of Python.
std::exception_ptr attend(Desk& desk, std::stop_source& stop) {
  std::exception_ptr raised;
  for (std::unique_lock lock(desk.mutex); !desk.done;) {
    desk.changed.wait_for(lock, kBetweenSignals, [&] { return desk.done || desk.question; });
    const std::function<void()>* const question = desk.question;
    if (desk.done || (raised && !question)) continue;
    lock.unlock();
    if (!raised && (raised = raised_by(question))) stop.request_stop();
    if (question) desk.answered();
    lock.lock();
  }
  return raised;
}

}  // namespace

void run_aside(const std::stop_token& cancel,
               const std::function<void(const std::stop_token& stop, const Ask& ask)>& work) {
  Desk desk;
  std::stop_source stop;
  std::exception_ptr failed, raised;
  {
    const nb::gil_scoped_release release;
    const std::stop_callback passed_on(cancel, [&] { stop.request_stop(); });
    std::jthread worker([&] {
      try {
        work(stop.get_token(), [&](const std::function<void()>& function) { desk.ask(function); });
      } catch (...) {
        failed = std::current_exception();
      }
      const std::lock_guard lock(desk.mutex);
      desk.done = true;
      desk.changed.notify_all();
    });
    raised = attend(desk, stop);
  }
  if (raised) std::rethrow_exception(raised);
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tessera::python
