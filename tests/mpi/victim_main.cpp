// A rank of a program that exchanges and computes, to be killed, stopped or made to fail: victim
// DIR MODE SECONDS. Writes DIR/<rank>.pid at the start and DIR/<rank>.body after the body. Modes:
// exchange, busy (rank 0 only computes), one (rank 1 throws), all (every rank throws), chain (0
// waits for 1, 1 for 2, and 2 computes), quiet (no messages), stages (repeated denoising, a stage
// per rank), shard, distrifusion (the same with a third of each block, or of the tokens, per rank),
// texts (repeated texts, with a third of each encoder layer per rank), decode (an image; rank 2
// fails to decode its lines, each body catches the error and continues with the next request, as
// under a server), slow-stages (a denoising run with blocks of 2 s each), ending and ended (rank 1
// stops itself before, or after, MPI's shutdown). DIR/<rank>.error holds a rank's error, or its
// image.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cluster/processes.h"
#include "comm/collectives.h"
#include "comm/mpi/launch.h"
#include "diffusion/decode.h"
#include "diffusion/failing_decoder.h"
#include "diffusion/launch_bands.h"
#include "diffusion/plan_job.h"
#include "diffusion/sharded_text.h"
#include "mpi/staged_run.h"
#include "nn/local_spatial.h"
#include "runtime/open_model.h"
#include "tensor/scope.h"
#include "test_paths.h"

namespace {

using namespace tessera;
using comm::Communicator;
using Clock = std::chrono::steady_clock;

template <class Value>
void write(const std::string& path, const Value& value) {
  std::ofstream(path + ".new") << value;
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

// Rank 2 counts work as ops do, for SECONDS.
void chain(Communicator& world, Clock::time_point end) {
  const comm::Tag tag{"chain", 7};
  if (world.rank() + 1 < world.size())
    world.receive(world.rank() + 1, tag).wait();
  else
    while (Clock::now() < end) tensor::parallel_tasks(1, [](int64_t) { usleep(20000); });
  if (world.rank() > 0)
    world.send(world.rank() - 1, tensor::Tensor::empty({1}, tensor::DType::u8), tag);
}

// All ranks stop after the same round: rank 0 decides.
bool another(Communicator& world, int round, Clock::time_point end) {
  const float more = world.rank() == 0 && Clock::now() < end ? 1.f : 0.f;
  const auto go =
      broadcast(world, 0, tensor::Tensor::from(std::vector<float>{more}, {1}), {"go", round % 28});
  return *go.data<float>() != 0.f;
}

void stages(Communicator& world, const std::string& begun, const std::string& mode,
            Clock::time_point end) {
  const models::Network& flux = models::kNetworks[3];  // with three blocks
  const bool slow = mode == "slow-stages";
  const std::string plan = mode == "stages" ? "pipefusion=3,patches=16"
                           : slow           ? "pipefusion=3,patches=2"
                                            : mode + "=3";
  const StagedRun run(flux, 0, plan, world.rank());
  barrier(world);
  write(begun, 1);
  if (slow) {
    run(2, &world, Pace{1, std::chrono::seconds(2)});
    return;
  }
  for (int round = 0; another(world, round, end); ++round) run(4, &world);
}

Processes processes_of(Communicator& world) {
  auto ranks = std::make_unique<Processes::State>();
  ranks->rank = ranks->index_here = world.rank();
  ranks->ranks = ranks->on_this_machine = world.size();
  ranks->world = &world;
  return Processes(std::move(ranks));
}

void open(const std::string& model, const char* plan, const Processes& processes,
          runtime::ModelState& state) {
  RunOptions options;
  options.plan = parse_plan(plan);
  options.processes = &processes;
  options.threads = 1;
  runtime::open_model(TESSERA_TEST_DATA "/diffusers/" + model + "/model", options, state);
}

void decode(Communicator& world, const std::string& told) {
  const Processes processes = processes_of(world);
  runtime::ModelState state;
  open("cogvideox_2b", "ulysses=3,vae=3", processes, state);
  GenerateRequest request;
  request.prompts = {"a beach"};
  request.width = request.height = 32;
  request.frames = 5;
  const diffusion::Job job = diffusion::plan_job(state, request);
  const FailingDecoder decoder(state.load_vae());
  const auto tokens = tensor::Tensor::zeros(
      {job.planned.layout.tokens(), job.planned.layout.token_channels()}, tensor::DType::f32);
  const auto share = [&](nn::Spatial& spatial, Communicator* ranks) {
    diffusion::decode_share(state, {}, job, {}, tokens, decoder, spatial, ranks, ranks->rank(),
                            false);
  };
  try {
    diffusion::launch_bands(state, job.counted.meters, {}, 0, share);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::rank) throw;
    write(told, error.what());
  }
  processes.share("");  // as if for the next request
}

void texts(Communicator& world, const std::string& begun, Clock::time_point end) {
  const Processes processes = processes_of(world);
  runtime::ModelState state;
  open("cogvideox_2b", "shard=3", processes, state);
  const models::TextBatch batch{std::vector<int32_t>(600, 7), {200, 200, 200}, 200};
  const runtime::RunMeters meters;
  Report did;
  barrier(world);
  write(begun, 1);
  for (int round = 0; another(world, round, end); ++round)
    diffusion::encode_sharded(state, "text_encoder", batch, 0, meters, {}, did);
}

void body(Communicator& world, const std::string& begun, const std::string& told,
          const std::string& mode, Clock::time_point end) {
  if (mode == "all") fail(ErrorCode::plan, "this plan cannot run");
  if (mode == "stages" || mode == "slow-stages" || mode == "shard" || mode == "distrifusion")
    return stages(world, begun, mode, end);
  if (mode == "texts") return texts(world, begun, end);
  if (mode == "decode") return decode(world, told);
  barrier(world);
  write(begun, 1);
  if (mode == "chain") return chain(world, end);
  if (mode == "ending" || mode == "ended") return;
  while (mode == "quiet" && Clock::now() < end) usleep(10000);
  if (mode == "quiet") return;
  volatile double x = 1;
  if (mode == "busy" && world.rank() == 0)
    while (Clock::now() < end) x = x * 1.0000001;
  for (int round = 0;; ++round) {
    if (mode == "one" && world.rank() == 1 && round == 20)
      fail(ErrorCode::model, "weight 'x' is damaged");
    round_of(world, round);
    if (!another(world, round, end)) break;
  }
}

// A stopped process cannot act: the kernel ends the process.
void end_within(std::chrono::milliseconds limit) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  const itimerspec when{{}, {limit.count() / 1000 + 1, limit.count() % 1000 * 1000000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &when, nullptr);
}

void report(const Error& error) { std::fprintf(stderr, "tessera: error: %s\n", error.what()); }

// Exits at once: mpirun kills the remaining processes after the exit of some.
[[noreturn]] void leave(const Error& error, const std::string& file) {
  write(file, error.what());
  _exit(static_cast<int>(error.code()));
}

}  // namespace

int main(int, char** argv) {
  std::signal(SIGTERM, [](int) { _exit(5); });
  const std::string rank = std::getenv("OMPI_COMM_WORLD_RANK"), dir = argv[1], mode = argv[2];
  write(dir + "/" + rank + ".pid", getpid());
  comm::mpi::Options options;
  options.deadline = std::chrono::seconds(mode == "decode" ? 600 : 3);
  options.report = report;
  const std::string own = dir + "/" + rank;
  options.give_up = [&](const Error& error) { leave(error, own + ".error"); };
  options.ending = [&](std::chrono::milliseconds limit) {
    end_within(limit);
    if (mode == "ending" && rank == "1") std::raise(SIGSTOP);
  };
  try {
    comm::mpi::run(options, [&](Communicator& world) {
      body(world, own + ".begun", own + ".error", mode,
           Clock::now() + std::chrono::milliseconds(static_cast<int>(std::atof(argv[3]) * 1000)));
      write(own + ".body", 1);
    });
  } catch (const Error& error) {
    leave(error, own + ".error");
  }
  if (mode == "ended" && rank == "1") std::raise(SIGSTOP);
  return 0;
}
