// A rank of MPI (run mpirun -np N): the suite of heaps over processes, buffers on GPUs, then layers
// of experts. With
// the word "lost" the last rank is killed within the gate of a layer; with "stopped" the rank stops
// there, and others wait for 2 s.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "comm/mpi/launch.h"
#include "fused/heap_conformance.h"
#include "fused/message_heap.h"
#include "fused/open_heap.h"
#include "fused/shared_pages.h"
#include "nn/random_bank.h"
#include "parallel/experts/exchange.h"
#include "parallel/experts/fused_experts.h"

namespace {

using namespace tessera;
using namespace nn::random_bank;

constexpr int kExperts = 6, kTokens = 200, kKilledIn = 5;

// The router's choice; in a given layer the call never returns.
class Choice final : public nn::ExpertPolicy {
 public:
  explicit Choice(int signal) : signal_(signal) {}
  ops::Routing choose(const nn::MoeCall& call, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& router) const override {
    if (signal_ != 0 && call.step.index == kKilledIn) kill(getpid(), signal_);
    return ops::route(logits, router);
  }

 private:
  int signal_;
};

// Layer after layer, each as computed by a single rank.
int layers(comm::Communicator& world, int signal) {
  const std::vector<int> owner = parallel::experts_in_blocks(kExperts, world.size());
  std::vector<bool> held;
  for (const int o : owner) held.push_back(o == world.rank());
  const nn::Range run = nn::split({0, kTokens}, world.size(), world.rank());
  parallel::FusedExperts fused(world, {owner, kTokens, 2});
  nn::LocalBackend local;
  nn::MoeLog log;
  const nn::Router gate_of = router(kExperts, 2, 1);
  const nn::ExpertWeights whole = bank(kExperts, 7, DType::f32),
                          mine = bank(kExperts, 7, DType::f32, held);
  const Choice choice(world.rank() + 1 == world.size() ? signal : 0);
  const nn::TokenView view{-1, {0}, {}, {{0, run}}, {}, nullptr};
  int made = 0;
  for (; signal != 0 || made < 20; ++made) {
    const Tensor x =
        normal({kTokens, 32}, uint32_t(made)).slice(0, run.begin, run.end).contiguous();
    const nn::MoeCall call{0, {made, 1, true, true}, view};
    const nn::Gate gate(gate_of, choice, call);
    const auto got = fused.run(call, x, gate, mine, log).to_floats();
    const auto want = local.run(call, x, gate, whole, log).to_floats();
    require(got == want, ErrorCode::rank, "layer {} is not that of one rank", made);
  }
  return made;
}

// Buffers on a GPU of each rank; pages of the host stand in for their memory.
void write_to_peers(comm::Communicator& world) {
  constexpr int64_t kBytes = 5000;
  const fused::GpuOfEachRank gpus;
  const std::vector<fused::GpuPlace> places = fused::gather_places(world);
  require(fused::share_a_gpu(world, places) == (world.size() == 1), ErrorCode::rank,
          "processes share a GPU");
  const fused::PeerBuffers buffers = fused::open_peer_buffers(world, places, kBytes);
  for (std::byte* const peer : buffers.addresses)
    peer[kBytes - 1 - world.rank()] = std::byte(world.rank() + 1);
  comm::barrier(world);
  for (int r = 0; r < world.size(); ++r)
    require(
        buffers.addresses[static_cast<size_t>(world.rank())][kBytes - 1 - r] == std::byte(r + 1),
        ErrorCode::rank, "rank {} did not write into the buffer of a peer", r);
  comm::barrier(world);
}

int run_all(int signal) {
  comm::mpi::Options options;
  options.deadline = std::chrono::seconds(signal == SIGSTOP ? 2 : 60);
  options.report = [](const Error& error) { std::fprintf(stderr, "%s\n", error.what()); };
  options.give_up = [](const Error& error) { _exit(static_cast<int>(error.code())); };
  comm::mpi::run(options, [&](comm::Communicator& world) {
    int cases = 0;
    bool messages = false;
    for (const fused::HeapCase& one : fused::heap_cases()) {
      const fused::HeapSize size{fused::kHeapBytes, fused::kHeapBytes, fused::kHeapBytes};
      const auto heap = fused::open_heap(world, size, tensor::Device::cpu);
      one.body(*heap);
      messages = dynamic_cast<const fused::MessageHeap*>(heap.get()) != nullptr;
      ++cases;
    }
    write_to_peers(world);
    const int made = layers(world, signal);
    comm::barrier(world);
    if (world.rank() == 0)
      std::printf("%d cases and %d layers hold on %d ranks by %s\n", cases, made, world.size(),
                  messages ? "messages" : "shared memory");
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool lost = argc > 1 && std::strcmp(argv[1], "lost") == 0;
    const bool stopped = argc > 1 && std::strcmp(argv[1], "stopped") == 0;
    return run_all(lost ? SIGKILL : stopped ? SIGSTOP : 0);
  } catch (const EchoError& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
