#include "pipeline/processes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/threads/launch.h"
#include "engine/golden.h"

namespace tessera {
namespace {

// Ranks as processes would be, each a thread here.
void as_processes(int ranks, const std::function<void(const Processes&)>& body) {
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    auto state = std::make_unique<Processes::State>();
    state->rank = state->index_here = world.rank();
    state->ranks = state->on_this_machine = world.size();
    state->world = &world;
    body(Processes(std::move(state)));
  });
}

Model open_over(const Processes& processes) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("expert=2");
  options.processes = &processes;
  return Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", options);
}

GenerateRequest two_steps() {
  GenerateRequest q;
  q.classes = {"1", "2"};
  q.steps = 2;
  q.decode = false;
  return q;
}

TEST(Processes, SayWhoTheyAre) {
  as_processes(2, [](const Processes& processes) {
    EXPECT_EQ(processes.ranks(), 2);
    EXPECT_EQ(processes.on_this_machine(), 2);
    EXPECT_EQ(processes.rank(), processes.state().world->rank());
  });
}

// Two models over the same ranks would send into each other's steps.
TEST(Processes, TakeOneRequestAtATimeOfAllModelsTogether) {
  std::vector<float> alone, beside, after;
  as_processes(2, [&](const Processes& processes) {
    const Model one = open_over(processes), other = open_over(processes);
    const GenerateResult first = one.generate(two_steps());
    if (processes.rank() == 0) alone = first.latents;
    std::string said;
    RunControl control;
    control.on_progress = [&](const Progress&) {
      std::thread([&] {
        try {
          other.generate(two_steps());
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::usage);
          said = e.what();
        }
      }).join();
    };
    const GenerateResult second = one.generate(two_steps(), control);
    EXPECT_NE(said.find("one at a time"), std::string::npos) << said;
    const GenerateResult third = other.generate(two_steps());
    if (processes.rank() != 0) return;
    beside = second.latents;
    after = third.latents;
  });
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(beside, alone);
  EXPECT_EQ(after, alone) << "the next one of the other model";
}

}  // namespace
}  // namespace tessera
