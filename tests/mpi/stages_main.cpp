// Pipelines with a slow rank: stages TASK RUNS, on the ranks of mpirun; or on RANKS threads: stages
// TASK RUNS RANKS. Tasks: small (64 patches pass through a stage per rank, with a stage ten times
// as slow as the others; bit-identical to patches on a single rank) and big (messages of 256 MB to
// a slow last stage: memory in flight stays bounded).
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/mpi/launch.h"
#include "comm/threads/launch.h"
#include "mpi/staged_run.h"

namespace {

using namespace tessera;
using comm::Communicator;
using tensor::DType;
using tensor::Tensor;

constexpr int kSteps = 3, kBlocks = 8;
constexpr const char* kPatches = "patches=64";

// FLUX and HunyuanDiT, with skips past the stages between, and a block for each of 8 ranks.
void small(Communicator& world, int runs) {
  const int rank = world.rank(), ranks = world.size();
  const std::string plan = "pipefusion=" + std::to_string(ranks) + "," + kPatches;
  const models::Network& flux = models::kNetworks[3];
  const models::Network& hunyuan = models::kNetworks[4];
  const StagedRun staged[] = {{flux, kBlocks - 3, plan, rank}, {hunyuan, kBlocks - 4, plan, rank}};
  std::vector<float> expected[2];
  if (rank + 1 == ranks) {
    expected[0] = StagedRun(flux, kBlocks - 3, kPatches, 0)(kSteps, nullptr).to_floats();
    expected[1] = StagedRun(hunyuan, kBlocks - 4, kPatches, 0)(kSteps, nullptr).to_floats();
  }
  for (int run = 0; run < runs; ++run) {
    const int which = run % 2;
    const Pace pace{run % ranks == rank ? 10.0 : 1.0};
    const Tensor latent = staged[which](kSteps, &world, pace);
    require(rank + 1 < ranks || latent.to_floats() == expected[which], ErrorCode::rank,
            "run {}: stages give other bits than patches on one rank", run);
  }
}

int64_t most_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Rows of a page each.
Tensor numbered(int64_t rows, int32_t number) {
  Tensor x = Tensor::empty({rows, 1 << 10}, DType::f32);
  for (int64_t r = 0; r < rows; ++r) *x.row<float>(r) = static_cast<float>(number);
  return x;
}

// Two steps of many patches, in the order of the loop.
void big(Communicator& world) {
  constexpr int kBig = 8;
  constexpr int64_t kRows = int64_t{256} << 8;  // rows of 4 KB
  const int ranks = world.size();
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  nn::Geometry g;
  g.blocks = ranks;
  parallel::Stages stages(
      g, parallel::blocks_of_stages(parse_plan("pipefusion=" + std::to_string(ranks)), ranks),
      world.group(all));
  const nn::TokenView view{0, {0}, {}, {{0, {0, kRows}}}, {}};
  for (int unit = 0; unit < 2 * kBig; ++unit) {
    const int step = unit / kBig, patch = unit % kBig;
    stages.begin(unit + 1 < 2 * kBig);
    while (stages.first() && stages.latent_before(step, patch)) {
    }
    if (stages.first() && step == 0) stages.expect_latent(step, patch);
    const nn::Hidden hidden =
        stages.first() ? nn::Hidden{{{}, numbered(kRows, unit)}, {}} : stages.arrived(view);
    const Tensor& rows = hidden.tokens.body;
    for (int64_t r = 0; r < kRows; ++r)
      require(*rows.row<float>(r) == float(unit), ErrorCode::rank, "patch {} is not as it was sent",
              unit);
    if (!stages.last()) stages.hand_on({{{}, numbered(kRows, unit)}, {}});
    if (!stages.last()) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (step == 0) stages.return_latent(numbered(1, unit));
  }
}

// Patches in a rank's memory: two expected, two ahead of them, two being sent, and two in use.
void check_memory(int ranks_here) {
  const auto most = static_cast<int64_t>(8.5 * double(int64_t{256} << 20)) * ranks_here;
  require(most_resident() <= most, ErrorCode::memory, "{} bytes were taken, expected at most {}",
          most_resident(), most);
}

void work(Communicator& world, const std::string& task, int runs, int ranks_here) {
  if (task == "small") small(world, runs);
  for (int run = 0; task == "big" && run < runs; ++run) big(world);
  if (task == "big") check_memory(ranks_here);
  barrier(world);
  if (world.rank() == 0) std::printf("%d runs on %d ranks are well\n", runs, world.size());
}

void on_processes(const std::string& task, int runs) {
  comm::mpi::Options options;
  options.deadline = std::chrono::seconds(60);
  options.report = [](const Error& error) { std::fprintf(stderr, "%s\n", error.what()); };
  options.give_up = [](const Error& error) { _exit(static_cast<int>(error.code())); };
  comm::mpi::run(options, [&](Communicator& world) { work(world, task, runs, 1); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string task = argc > 2 ? argv[1] : "";
    require(task == "small" || task == "big", ErrorCode::usage, "stages small|big RUNS [RANKS]");
    const int runs = std::atoi(argv[2]), ranks = argc > 3 ? std::atoi(argv[3]) : 0;
    if (comm::mpi::launched()) {
      on_processes(task, runs);
      return 0;
    }
    comm::threads::run(ranks, std::chrono::seconds(60),
                       [&](Communicator& world) { work(world, task, runs, ranks); });
  } catch (const EchoError& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
