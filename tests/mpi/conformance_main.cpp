// One rank of MPI that runs every case of the suite made for so many ranks: mpirun -np N this.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/conformance.h"
#include "comm/mpi/launch.h"

namespace {

using namespace tessera;
using comm::Communicator;

// More than one part of a message, and other shapes than lists.
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
      } catch (const Error& error) {
        throw Error(error.code(), one.name + ": " + error.what());
      }
      ++cases;
    }
    const auto own = world.group(all);
    if (world.size() <= 4) parts(*own);
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
