// Ranks as if they were processes with a GPU each: separate models, tensors by NCCL. Here ranks are
// threads with an emulated GPU.
#include <gtest/gtest.h>

#include "cluster/processes.h"
#include "comm/communicator.h"
#include "comm/nccl/launch.h"
#include "comm/nccl/transfer_queue.h"
#include "comm/threads/launch.h"
#include "device/emulated_gpu.h"
#include "device/emulated_nccl.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/llada_golden.h"

namespace tessera::device {
namespace {

RunOptions options(const std::string& device, const std::string& plan) {
  RunOptions run = golden::options(Precision::bf16);
  run.device = parse_device(device);
  run.plan = parse_plan(plan);
  return run;
}

GenerateResult generated(const RunOptions& run, int steps = 4) {
  GenerateRequest request;
  request.classes = {"1", "3"};
  request.steps = steps;
  request.guidance = 1.5f;
  request.decode = false;
  return Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model", run)
      .generate(request);
}

CompleteResult completed(const RunOptions& run) {
  const golden::LladaCase golden("llada_moe");
  CompleteRequest q;
  q.prompt_ids = {{5, 17, 3, 8}, {4, 4, 2}};
  q.max_tokens = 16;
  q.block = 8;
  q.select = "vanilla";
  q.stop_at_eos = StopAtEos::none;
  return Model::open(golden.folder + "/model", run).complete(q);
}

struct Moved {
  int64_t tensors = 0;    // by NCCL
  int64_t downloads = 0;  // on all ranks
};

// `body` on each rank of a plan.
Moved on_ranks(const std::string& plan, const std::function<void(const RunOptions&)>& body) {
  EmulatedGpu gpu;
  EmulatedNccl nccl(gpu);
  RunOptions run = options("cuda", plan);
  const int ranks = run.plan.world();
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    auto state = std::make_unique<Processes::State>();
    state->rank = state->index_here = world.rank();
    state->ranks = state->on_this_machine = ranks;
    state->world = &world;
    state->gpus = comm::nccl::over(world, EmulatedNccl::functions());
    const Processes processes(std::move(state));
    RunOptions mine = run;
    mine.processes = &processes;
    body(mine);
  });
  EXPECT_EQ(nccl.misuses(), 0);
  EXPECT_EQ(nccl.open_ends(), 0);
  const int64_t tensors = nccl.transfers() - ranks * (ranks - 1);
  EXPECT_EQ(gpu.spared(), 0);
  EXPECT_EQ(gpu.most_spared(), tensors > 0 ? comm::nccl::TransferQueue::kSpared : 0);
  return {tensors, gpu.downloads()};
}

TEST(RanksWithGpus, GenerateWhatOneProcessDoes) {
  for (const char* plan : {"data=2", "distrifusion=2", "pipefusion=3,patches=4", "expert=2",
                           "expert=3,placement=strided", "expert=2,schedule=displaced",
                           "expert=2,schedule=interweaved", "expert=2,schedule=staggered-batch",
                           "expert=2,schedule=displaced,conditional=low"}) {
    const GenerateResult here = generated(options("cpu", plan));
    GenerateResult there;
    const Moved moved = on_ranks(plan, [&](const RunOptions& run) {
      GenerateResult made = generated(run);
      if (run.processes->rank() == 0) there = std::move(made);
    });
    EXPECT_EQ(there.latents, here.latents) << plan;
    EXPECT_EQ(moved.tensors > 0, std::string(plan) != "data=2") << plan << ": " << moved.tensors;
    EXPECT_EQ(there.report.device, "cuda:0 (emulated GPU)");
    for (const auto& [key, traffic] : here.report.traffic)
      EXPECT_EQ(there.report.traffic.at(key).bytes, traffic.bytes) << plan << " " << key.first;
  }
}

// A rank waits on the host for routing once per layer, beside other ranks: a single transfer tells
// which experts get rows. Arriving rows carry their experts only to the device.
TEST(RanksWithGpus, ALayerOfExpertsWaitsForTheHostOnce) {
  constexpr int kLayers = 3;
  const auto downloads_of_a_step = [](const std::string& plan) {
    const auto downloads = [&](int steps) {
      return on_ranks(plan, [&](const RunOptions& run) { generated(run, steps); }).downloads;
    };
    return (downloads(6) - downloads(4)) / 2;
  };
  const int64_t without = downloads_of_a_step("data=2");
  for (const char* schedule : {"", ",schedule=displaced", ",schedule=interweaved"})
    EXPECT_EQ(downloads_of_a_step(std::string("expert=2") + schedule) - without, 2 * kLayers)
        << schedule;
}

TEST(RanksWithGpus, CompleteWhatOneProcessDoes) {
  for (const char* plan : {"expert=2", "tensor=2"}) {
    const auto here = completed(options("cpu", plan));
    CompleteResult there;
    on_ranks(plan, [&](const RunOptions& run) {
      CompleteResult made = completed(run);
      if (run.processes->rank() == 0) there = std::move(made);
    });
    ASSERT_EQ(there.completions.size(), here.completions.size());
    for (size_t i = 0; i < here.completions.size(); ++i)
      EXPECT_EQ(there.completions[i].ids, here.completions[i].ids) << plan;
  }
}

TEST(RanksWithGpus, AFailureOfOneIsThatOfAll) {
  try {
    on_ranks("expert=2", [&](const RunOptions& run) {
      RunOptions mine = run;
      if (run.processes->rank() == 1) mine.memory_budget = 1000;
      generated(mine);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory) << error.what();
  }
}

}  // namespace
}  // namespace tessera::device
