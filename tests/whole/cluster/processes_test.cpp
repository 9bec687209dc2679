#include "cluster/processes.h"

#include <gtest/gtest.h>

#include <thread>

#include "cluster/on_processes.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

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
  on_processes(2, [](const Processes& processes) {
    EXPECT_EQ(processes.ranks(), 2);
    EXPECT_EQ(processes.on_this_machine(), 2);
    EXPECT_EQ(processes.rank(), processes.state().world->rank());
  });
}

TEST(Processes, HearWhatTheFirstOneSays) {
  on_processes(3, [](const Processes& processes) {
    for (const std::string& said :
         {std::string("a request"), std::string(), std::string(70000, 'x')})
      EXPECT_EQ(processes.share(processes.rank() == 0 ? said : "of another rank"), said);
  });
}

// Two models over the same ranks would send into each other's steps.
TEST(Processes, TakeOneRequestAtATimeOfAllModelsTogether) {
  std::vector<float> alone, beside, after;
  on_processes(2, [&](const Processes& processes) {
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

// A process has less memory than the others, or a smaller budget.
TEST(Processes, AllEndByTheNameOfTheOneWhoseMemoryIsTooSmall) {
  on_processes(2, [](const Processes& processes) {
    const auto refused = [&](const char* model, const std::function<void(const Model&)>& ask) {
      RunOptions options = golden::options(Precision::f32);
      options.plan = parse_plan("expert=2");
      options.processes = &processes;
      if (processes.rank() == 1) options.memory_budget = 1000;
      try {
        ask(Model::open(model, options));
        ADD_FAILURE() << model << ": rank " << processes.rank() << " went on";
      } catch (const Error& e) {
        const std::string said = e.what();
        EXPECT_EQ(e.code(), ErrorCode::memory) << said;
        EXPECT_TRUE(said.starts_with("rank 1, which plans the run: this run")) << said;
      }
    };
    refused("shapes", [](const Model& model) { model.generate(two_steps()); });
    refused("tasks-a", [](const Model& model) { model.complete({.prompts = {"sort hello="}}); });
    EXPECT_EQ(processes.share("next"), "next") << "they still hear each other";
  });
}

}  // namespace
}  // namespace tessera
