// One rank of a program that exchanges and computes, to be killed, stopped or made to fail.
// victim DIR MODE SECONDS; writes DIR/<rank>.pid when it starts and DIR/<rank>.body when its body
// ends. Modes: exchange, busy (rank 0 only computes), one (rank 1 throws), all (everybody throws).
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/mpi/launch.h"

namespace {

using namespace tessera;
using comm::Communicator;
using Clock = std::chrono::steady_clock;

void write(const std::string& path, int number) {
  std::ofstream(path + ".new") << number;
  std::rename((path + ".new").c_str(), path.c_str());
}

void round_of(Communicator& world, int round) {
  std::vector<tensor::Tensor> out;
  for (int to = 0; to < world.size(); ++to) {
    const int64_t count = (world.rank() + to + round) % 3 == 0 ? 0 : 1 << (8 + round % 12);
    out.push_back(tensor::Tensor::empty({count}, tensor::DType::i32));
    for (int64_t i = 0; i < count; ++i)
      out.back().data<int32_t>()[i] = world.rank() * 1000 + to * 100 + round % 100;
  }
  const auto in = all_to_all(world, std::move(out), {"exchange", round % 28}).wait();
  for (int from = 0; from < world.size(); ++from)
    for (int64_t i = 0; i < in[size_t(from)].elements(); ++i)
      require(in[size_t(from)].data<int32_t>()[i] == from * 1000 + world.rank() * 100 + round % 100,
              ErrorCode::rank, "a message is not as it was sent");
}

void body(Communicator& world, const std::string& begun, const std::string& mode,
          Clock::time_point end) {
  if (mode == "all") fail(ErrorCode::plan, "this plan cannot run");
  barrier(world);
  write(begun, 1);
  volatile double x = 1;
  if (mode == "busy" && world.rank() == 0)
    while (Clock::now() < end) x = x * 1.0000001;
  for (int round = 0;; ++round) {
    if (mode == "one" && world.rank() == 1 && round == 20)
      fail(ErrorCode::model, "weight 'x' is damaged");
    round_of(world, round);
    // Everybody stops after the same round: rank 0 says when.
    const float more = world.rank() == 0 && Clock::now() < end ? 1.f : 0.f;
    const auto go = broadcast(world, 0, tensor::Tensor::from(std::vector<float>{more}, {1}),
                              {"go", round % 28});
    if (*go.data<float>() == 0.f) break;
  }
}

void report(const Error& error) { std::fprintf(stderr, "tessera: error: %s\n", error.what()); }

// At once: mpirun kills what is left when it has seen some of its processes end.
[[noreturn]] void leave(const Error& error) { _exit(static_cast<int>(error.code())); }

}  // namespace

int main(int, char** argv) {
  std::signal(SIGTERM, [](int) { _exit(5); });
  const std::string rank = std::getenv("OMPI_COMM_WORLD_RANK"), dir = argv[1], mode = argv[2];
  write(dir + "/" + rank + ".pid", getpid());
  comm::mpi::Options options;
  options.deadline = std::chrono::seconds(3);
  options.report = report;
  options.give_up = leave;
  try {
    comm::mpi::run(options, [&](Communicator& world) {
      body(world, dir + "/" + rank + ".begun", mode,
           Clock::now() + std::chrono::milliseconds(static_cast<int>(std::atof(argv[3]) * 1000)));
      write(dir + "/" + rank + ".body", 1);
    });
  } catch (const Error& error) {
    leave(error);
  }
  return 0;
}
