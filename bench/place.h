#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "kernels/gpu.h"
#include "tensor/device_pool.h"
#include "tensor/recording.h"

namespace tessera::bench {

/// Device of a benchmark: takes "--device cpu|cuda" and "--turns" from the arguments. With --turns,
/// a measurement starts for each line on standard input, so that a peer can measure in between.
class Place {
 public:
  Place(int& argc, char** argv) {
    int count = 1;
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--turns") == 0)
        turns = true;
      else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc)
        name_ = argv[++i];
      else
        argv[count++] = argv[i];
    }
    argc = count;
    if (name_ == "cuda")
      start();
    else if (name_ != "cpu")
      stop("--device " + name_ + ": expected 'cpu' or 'cuda'");
  }
  ~Place() {
    if (on_gpu()) tensor::use_device(nullptr);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  bool on_gpu() const { return device == tensor::Device::cuda; }
  tensor::Tensor operator()(const tensor::Tensor& t) const { return t.to(device); }

  /// Prints a JSON line with the milliseconds of `run`. On a GPU: the median of `samples` queues of
  /// calls that last some 20 ms, after a warm-up. On a CPU: the best of `samples`. `recorded`:
  /// number of calls recorded on a GPU and replayed: 1 for work that the engine records too; more
  /// for short calls.
  template <class Run>
  void measure(const std::string& bench, const std::string& shape, int samples, const Run& work,
               int recorded = 0) const {
    const double flops = counted(work);
    const auto recording = record(recorded, work);
    const int works = recording ? recorded : 1;
    const auto run = [&] { recording ? recording->replay() : work(); };
    for (bool more = !turns || turn(); more; more = turns && turn()) {
      const double seconds =
          (on_gpu() ? queued(samples, run) : kernels::best_seconds(run, samples)) / works;
      std::puts(fmt::format("{{\"bench\":\"{}\",\"shape\":\"{}\",\"device\":\"{}\",\"threads\":{},"
                            "\"recorded\":{},\"ms\":{:.4f},\"gflops\":{:.1f}}}",
                            bench, shape, name_, tensor::thread_count(), recording != nullptr,
                            seconds * 1e3, flops / seconds / 1e9)
                    .c_str());
      std::fflush(stdout);
    }
  }

  /// Waits for a line on standard input; false at its end.
  static bool turn() {
    for (int c = std::getchar(); c != EOF; c = std::getchar())
      if (c == '\n') return true;
    return false;
  }

  tensor::Device device = tensor::Device::cpu;
  bool turns = false;

 private:
  [[noreturn]] static void stop(const std::string& reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(2);
  }
  void start() {
    try {
      tensor::use_device(std::make_shared<tensor::DevicePool>(kernels::open_gpu(0)));
      tensor::device_pool()->runtime().enter();
      device = tensor::Device::cuda;
    } catch (const std::exception& error) {
      stop(error.what());
    }
  }
  template <class Run>
  std::unique_ptr<tensor::Recording> record(int times, const Run& run) const {
    if (times == 0 || !on_gpu()) return nullptr;
    return tensor::Recording::attempt([&] {
      for (int i = 0; i < times; ++i) run();
    });
  }
  // A counted run, also used as warm-up.
  template <class Run>
  static double counted(const Run& run) {
    tensor::Scope counting = tensor::current_scope();
    counting.meter = std::make_shared<tensor::Meter>();
    const tensor::BindScope bind(counting);
    run();
    return counting.meter->total().flops;
  }
  template <class Run>
  static double queue_seconds(int calls, const Run& run) {
    tensor::DeviceRuntime& gpu = tensor::device_pool()->runtime();
    gpu.synchronise(tensor::current_scope().stream);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) run();
    gpu.synchronise(tensor::current_scope().stream);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  }
  template <class Run>
  static double queued(int samples, const Run& run) {
    queue_seconds(3, run);
    const int calls = std::clamp(static_cast<int>(0.02 / queue_seconds(3, run)), 1, 200);
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(queue_seconds(calls, run));
    return median(seconds);
  }

  std::string name_ = "cpu";
};

}  // namespace tessera::bench
