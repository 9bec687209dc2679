// Ranks of mpirun that exchange, compute, and do both at once; rank 0 prints JSON lines.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "bench.h"
#include "comm/collectives.h"
#include "comm/mpi/launch.h"

namespace {

using namespace tessera;
using comm::Communicator;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

volatile double sink = 1;
void compute(int64_t rounds) {
  double x = sink;
  for (int64_t i = 0; i < rounds; ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
}

comm::Exchange start(Communicator& world, int64_t bytes) {
  std::vector<tensor::Tensor> out(static_cast<size_t>(world.size()),
                                  tensor::Tensor::zeros({bytes}, tensor::DType::u8));
  return all_to_all(world, std::move(out), {"exchange", 0});
}

// Runs several in a row: ranks leave a barrier at different times, but keep step in a run.
constexpr int kRun = 4;

template <class F>
double timed(Communicator& world, int repeats, F&& body) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    barrier(world);
    const auto begin = Clock::now();
    for (int j = 0; j < kRun; ++j) body();
    times.push_back(seconds_since(begin) / kRun);
  }
  return bench::median(times);
}

void measure(Communicator& world, double rounds_per_second) {
  const bool prints = world.rank() == 0;
  const double barrier_seconds = timed(world, 200, [&] { barrier(world); });
  const int64_t second = static_cast<int64_t>(rounds_per_second / 4);
  const double busy = timed(world, 3, [&] { compute(second); });
  if (prints)
    std::printf(
        "{\"bench\": \"idle\", \"ranks\": %d, \"barrier_us\": %.1f, "
        "\"compute_slowdown\": %.4f}\n",
        world.size(), barrier_seconds * 1e6, busy * 4);
  for (const int64_t bytes :
       {int64_t{4} << 10, int64_t{64} << 10, int64_t{1} << 20, int64_t{4} << 20}) {
    const double x = timed(world, 3, [&] { start(world, bytes).wait(); });
    const int64_t rounds = static_cast<int64_t>(x * rounds_per_second);
    const double a = timed(world, 3, [&] { compute(rounds); });
    const double combined = timed(world, 3, [&] {
      auto exchange = start(world, bytes);
      compute(rounds);
      exchange.wait();
    });
    if (prints)
      std::printf(
          "{\"bench\": \"exchange\", \"ranks\": %d, \"bytes\": %lld, \"x_ms\": %.3f, "
          "\"mbit_each_way\": %.1f, \"a_ms\": %.3f, \"both_ms\": %.3f, "
          "\"of_bound\": %.3f, \"speedup\": %.3f}\n",
          world.size(), static_cast<long long>(bytes), x * 1e3,
          double(bytes) * (world.size() - 1) * 8e-6 / x, a * 1e3, combined * 1e3,
          std::max(a, x) / combined, (a + x) / combined);
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  const auto begin = Clock::now();
  const int64_t rounds = 100'000'000;
  compute(rounds);
  const double rounds_per_second = double(rounds) / seconds_since(begin);
  comm::mpi::Options options;
  options.report = [](const Error& error) { std::fprintf(stderr, "%s\n", error.what()); };
  options.give_up = [](const Error& error) { _exit(static_cast<int>(error.code())); };
  try {
    comm::mpi::run(options, [&](Communicator& world) { measure(world, rounds_per_second); });
  } catch (const Error& error) {
    _exit(static_cast<int>(error.code()));
  }
}
