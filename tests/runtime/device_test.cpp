#include "runtime/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cluster/processes.h"
#include "cluster/ranks.h"
#include "comm/threads/launch.h"
#include "tensor/device_pool.h"
#include "tensor/fake_runtime.h"
#include "tessera/error.h"

namespace tessera::runtime {
namespace {

using tensor::Device;

std::string refusal(const std::string& text) {
  try {
    (void)parse_device(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Device, IsReadFromItsName) {
  EXPECT_EQ(parse_device("cpu").kind, DeviceKind::cpu);
  EXPECT_EQ(parse_device("cuda").kind, DeviceKind::cuda);
  EXPECT_FALSE(parse_device("cuda").index);
  EXPECT_EQ(choose_device(parse_device("cuda")).index, 0);
  EXPECT_EQ(choose_device(parse_device("cuda")).device, Device::cuda);
  EXPECT_EQ(parse_device("cuda:12").index, 12);
  for (const char* text : {"tpu", "", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CUDA"})
    EXPECT_NE(refusal(text).find("expected 'cpu', 'cuda' or 'cuda:N'"), std::string::npos) << text;
}

TEST(Device, TheCpuNeedsNoStart) {
  start_device({});
  EXPECT_FALSE(tensor::has_device());
  EXPECT_EQ(device_name({}), "cpu");
}

TEST(Device, OneThatTheCallerBroughtIsTaken) {
  tensor::use_device(
      std::make_shared<tensor::DevicePool>(std::make_shared<tensor::FakeRuntime>(1 << 20)));
  start_device({Device::cuda, 0});
  EXPECT_EQ(device_name({Device::cuda, 0}), "cuda:0 (Fake GPU)");
  EXPECT_EQ(free_device_memory(), 1 << 20);
  tensor::use_device(nullptr);
}

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(Device, ARankOfAMachineTakesItsGpu) {
  tensor::use_device(
      std::make_shared<tensor::DevicePool>(std::make_shared<tensor::FakeRuntime>(1 << 20)));
  comm::threads::run(1, std::chrono::seconds(10), [](comm::Communicator& world) {
    auto of = std::make_unique<Processes::State>();
    of->rank = 5;
    of->ranks = 8;
    of->on_this_machine = 4;
    of->world = &world;
    of->index_here = 1;
    of->gpus = world.group({0});  // open already
    const Processes processes(std::move(of));
    RunOptions options;
    options.processes = &processes;
    DeviceChoice choice = choose_device(parse_device("cuda"));
    start_device(choice, options);
    EXPECT_EQ(choice.index, 1);
    comm::Communicator* used = nullptr;
    cluster::Ranks::processes(processes, 8, choice.device)
        .run([](int) { return tensor::Scope(); }, {},
             [&](comm::Communicator* ranks) { used = ranks; });
    EXPECT_EQ(used, processes.state().gpus.get());
    DeviceChoice named = choose_device(parse_device("cuda:1"));
    EXPECT_NE(text_of([&] { start_device(named, options); }).find("cannot share a GPU"),
              std::string::npos);
    const Processes alone(std::make_unique<Processes::State>());
    options.processes = &alone;
    start_device(named, options);
    EXPECT_EQ(named.index, 1);
    EXPECT_FALSE(alone.state().gpus);
  });
  tensor::use_device(nullptr);
}

TEST(Device, WeightsAreGatheredOnHosts) {
  EXPECT_NO_THROW(check_weights(parse_plan("shard=2"), {}));
  EXPECT_NO_THROW(check_weights(parse_plan("expert=4,moe=fused"), {Device::cuda, 0}));
  EXPECT_THROW(check_weights(parse_plan("shard=2"), {Device::cuda, 0}), Error);
}

TEST(Device, EachRankOfAMachineNeedsAGpu) {
  EXPECT_EQ(text_of([] { check_gpus(2, 2); }), "no error");
  const std::string text = text_of([] { check_gpus(1, 4); });
  EXPECT_NE(text.find("4 ranks were started on this machine, which shows 1 GPU;"),
            std::string::npos)
      << text;
}

TEST(Device, AGpuThatIsNotThereIsRefused) {
  EXPECT_THROW(start_device({Device::cuda, 1000}), Error);
  EXPECT_FALSE(tensor::has_device());
}

}  // namespace
}  // namespace tessera::runtime
