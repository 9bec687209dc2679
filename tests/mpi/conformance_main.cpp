// A rank of MPI for the cases of the suite with this number of ranks: run mpirun -np N.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/conformance.h"
#include "comm/mpi/launch.h"
#include "comm/shuffled_transport.h"
#include "tensor/scope.h"
#include "tensor/work_count.h"

namespace {

using namespace tessera;
using comm::Communicator;

// Messages with several parts, and shapes beyond lists.
void parts(Communicator& world) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  tensor::Tensor out = tensor::Tensor::empty({3, 7, 1000003}, tensor::DType::bf16);
  for (int64_t i = 0; i < out.elements(); ++i)
    out.data<uint16_t>()[i] = static_cast<uint16_t>(i * 31 + world.rank());
  world.send(next, out, {"parts", 1});
  world.send(next, tensor::Tensor::zeros({0, 4}, tensor::DType::f32), {"none", 2});
  const tensor::Tensor in = world.receive(before, {"parts", 1}).wait();
  const tensor::Tensor none = world.receive(before, {"none", 2}).wait();
  bool good = in.shape() == out.shape() && in.dtype() == out.dtype() &&
              none.shape() == tensor::Shape{0, 4} && none.dtype() == tensor::DType::f32;
  for (int64_t i = 0; good && i < in.elements(); ++i)
    good = in.data<uint16_t>()[i] == static_cast<uint16_t>(i * 31 + before);
  require(good, ErrorCode::rank, "a message of many parts is not as it was sent");
}

// A message may take longer than the limit without progress.
void each_part_is_progress(Communicator& world) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const uint64_t before = *tensor::work_count();
  barrier(world);
  if (world.rank() == 0)
    world.send(1, tensor::Tensor::zeros({kBytes}, tensor::DType::u8), {"long", 0});
  if (world.rank() != 1) return;
  world.receive(0, {"long", 0}).wait();
  const uint64_t seen = *tensor::work_count() - before;
  require(seen > kBytes >> 20, ErrorCode::rank, "{} pieces of a message of 64 MB were counted",
          seen);
}

// Small messages after a hundred megabytes arrive first, on the same channel and on another.
void small_overtake_bulk(Communicator& world, Communicator& other) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  const auto bulk = tensor::Tensor::zeros({100 << 20}, tensor::DType::u8),
             rows = tensor::Tensor::zeros({100000}, tensor::DType::u8),
             word = tensor::Tensor::zeros({1}, tensor::DType::u8);
  barrier(other);
  comm::Pending late = world.receive(before, {"bulk", 0}),
                soon = world.receive(before, {"rows", 1}),
                aside = other.receive(before, {"word", 2});
  world.send(next, bulk, {"bulk", 0});
  world.send(next, rows, {"rows", 1});
  other.send(next, word, {"word", 2});
  soon.wait();
  aside.wait();
  late.wait();
  const auto flight = [&](const char* name, int site) {
    return world.ledger().entries().at({name, site}).flight_seconds;
  };
  require(flight("rows", 1) < flight("bulk", 0) && flight("word", 2) < flight("bulk", 0),
          ErrorCode::rank, "a small message waited for a large one: {} and {} s, {} s",
          flight("rows", 1), flight("word", 2), flight("bulk", 0));
}

// No receive is posted for a while: the sender is blocked, and the receiver's memory is bounded and
// counted.
void a_fast_sender_waits(Communicator& world) {
  constexpr int64_t kEach = int64_t{64} << 20;
  constexpr int kMessages = 10;
  if (world.rank() == 0)
    for (int i = 0; i < kMessages; ++i)
      world.send(1, tensor::Tensor::empty({kEach}, tensor::DType::u8), {"fast", i});
  if (world.rank() != 1) return;
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bound(scope);
  comm::Pending none = world.receive(0, {"fast", 0});
  none.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int i = 1; i < kMessages; ++i)
    require(world.receive(0, {"fast", i}).wait().bytes() == kEach, ErrorCode::rank,
            "half a message");
  const int64_t peak = scope.memory->peak(tensor::MemoryClass::buffers);
  const auto most = static_cast<int64_t>(comm::Transport::kMostAhead) + 2 * kEach;
  require(peak >= kEach && peak <= most, ErrorCode::rank,
          "what arrived took {} bytes, expected {} to {}", peak, kEach, most);
}

// With messages in flight: waking threads take the core from the computing thread.
void a_rank_that_computes_is_left_alone(Communicator& world, Communicator& other) {
  using Clock = std::chrono::steady_clock;
  comm::Pending later = world.receive(1 - world.rank(), {"later", 0});
  barrier(other);
  const auto wakes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  const long before = wakes();
  const auto begin = Clock::now();
  while (Clock::now() - begin < std::chrono::milliseconds(500)) world.advance();
  const double rate =
      double(wakes() - before) / std::chrono::duration<double>(Clock::now() - begin).count();
  world.send(1 - world.rank(), tensor::Tensor::zeros({1}, tensor::DType::u8), {"later", 0});
  later.wait();
  require(rate < 2000, ErrorCode::rank,
          "threads of a rank that computes woke {:.0f} times a second", rate);
}

int run_all() {
  int cases = 0;
  comm::mpi::Options options;
  options.deadline = std::chrono::seconds(60);
  options.report = [](const Error& error) { std::fprintf(stderr, "%s\n", error.what()); };
  options.give_up = [](const Error& error) { _exit(static_cast<int>(error.code())); };
  comm::mpi::run(options, [&](Communicator& world) {
    std::vector<int> all;
    for (int rank = 0; rank < world.size(); ++rank) all.push_back(rank);
    for (const comm::ConformanceCase& one : comm::conformance_cases()) {
      if (one.ranks != world.size()) continue;
      const auto own = world.group(all);
      try {
        one.body(*own);
        if (world.size() <= 3) {
          const auto late = world.over(
              [](auto below, auto) { return comm::shuffled(below, std::chrono::milliseconds(3)); });
          one.body(*late);
        }
      } catch (const Error& error) {
        throw Error(error.code(), one.name + ": " + error.what());
      }
      ++cases;
    }
    const auto own = world.group(all);
    if (world.size() <= 4) parts(*own);
    if (world.size() == 2) {
      small_overtake_bulk(*own, *world.group(all));
      a_fast_sender_waits(*own);
      each_part_is_progress(*own);
      a_rank_that_computes_is_left_alone(*own, *world.group(all));
    }
    barrier(world);
    if (world.rank() == 0) std::printf("%d cases hold on %d ranks\n", cases, world.size());
  });
  return cases > 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run_all();
  } catch (const EchoError& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
