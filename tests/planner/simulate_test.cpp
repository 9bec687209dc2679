#include "planner/simulate.h"

#include <gtest/gtest.h>

#include "planner/small_recording.h"
#include "tessera/error.h"

namespace tessera::planner {
namespace {

// Ops of 1e9 FLOPs take 1 ms, messages of 1 MB take 1 ms.
Cluster plain(int hosts = 1) {
  Cluster cluster;
  cluster.device.flops = {{"bf16", 1e12}};
  cluster.device.memory_bandwidth = 1e12;
  cluster.device.memory_bytes = 1e9;
  cluster.hosts = hosts;
  cluster.devices = 2 / hosts;
  cluster.link = {1e9, 0};
  cluster.network = {1e8, 0};
  return cluster;
}

TEST(Simulate, ComputesThenMovesBytes) {
  const Simulation run = simulate(two_ranks(1, 1, 1'000'000), plain());
  EXPECT_NEAR(run.seconds, 2e-3, 1e-9);
  EXPECT_NEAR(run.compute_seconds[0], 1e-3, 1e-9);
  EXPECT_NEAR(run.wait_seconds[1], 1e-3, 1e-9);
  EXPECT_NEAR(run.waiting_share(), 0.5, 1e-9);
  EXPECT_EQ(run.link_bytes.at("out 0"), 1e6);
}

TEST(Simulate, BetweenHostsTheNetworkLimits) {
  EXPECT_NEAR(simulate(two_ranks(1, 1, 1'000'000), plain(2)).seconds, 11e-3, 1e-9);
}

TEST(Simulate, LatencyIsAddedToEachMessage) {
  Cluster cluster = plain();
  cluster.link.latency = 5e-3;
  EXPECT_NEAR(simulate(two_ranks(2, 2, 1'000'000), cluster).seconds, 14e-3, 1e-9);
}

TEST(Simulate, MessagesOnOneLinkFollowEachOther) {
  // Both ranks send at the same time over a common bus.
  Cluster cluster = plain();
  cluster.bus = Link{1e9, 0};
  EXPECT_NEAR(simulate(two_ranks(1, 1, 1'000'000), cluster).seconds, 3e-3, 1e-9);
}

TEST(Simulate, StepsThatRepeatTakeAsLongAsIfTheyWereRecorded) {
  const double all = simulate(two_ranks(40, 40, 1'000'000), plain()).seconds;
  const Simulation few = simulate(two_ranks(40, 5, 1'000'000), plain());
  EXPECT_NEAR(few.seconds, all, 1e-9);
  EXPECT_NEAR(few.link_bytes.at("in 1"), 40e6, 1);
}

TEST(Simulate, TheFirstAndTheLastStepMayDiffer) {
  Recording few = two_ranks(12, 5, 1'000'000), all = two_ranks(12, 12, 1'000'000);
  for (Recording* const made : {&few, &all})
    for (RankRecording& rank : made->ranks) {
      auto &first = rank.steps.front(), &last = rank.steps.back();
      first.insert(first.begin(), 3, first[1]);  // more ops
      last.push_back(last[1]);
    }
  const Simulation made = simulate(few, plain());
  EXPECT_NEAR(made.seconds, simulate(all, plain()).seconds, 1e-9);
  EXPECT_NEAR(made.seconds, 28e-3, 1e-9);
  EXPECT_EQ(made.link_bytes, simulate(all, plain()).link_bytes);
}

TEST(Simulate, TheHostMayLimit) {
  Cluster cluster = plain();
  cluster.software.host_op_seconds = 10e-3;
  EXPECT_NEAR(simulate(two_ranks(1, 1, 1'000'000), cluster).seconds, 12e-3, 1e-9);
}

TEST(Simulate, MessagesMayTakeTimeOfTheirSender) {
  Cluster cluster = plain();
  cluster.software.message_seconds = 4e-3;
  cluster.software.message_bytes_per_second = 1e9;
  const Simulation run = simulate(two_ranks(1, 1, 1'000'000), cluster);
  EXPECT_NEAR(run.seconds, 7e-3, 1e-9);
  EXPECT_NEAR(run.compute_seconds[1], 6e-3, 1e-9);
  EXPECT_NEAR(run.wait_seconds[1], 1e-3, 1e-9);
}

TEST(Simulate, GivesTheSameBitByBit) {
  const Simulation a = simulate(two_ranks(9, 5, 77'777), plain());
  const Simulation b = simulate(two_ranks(9, 5, 77'777, true), plain());
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.wait_seconds, b.wait_seconds);
}

TEST(Simulate, RefusesARecordingThatWaitsForever) {
  Recording made = two_ranks(1, 1, 10);
  made.ranks[1].steps[0].clear();
  EXPECT_THROW(simulate(made, plain()), Error);
}

TEST(Simulate, ShowsWhatRanksDoWhen) {
  const Simulation run = simulate(two_ranks(1, 1, 1'000'000), plain(), true);
  int computes = 0, waits = 0, messages = 0, links = 0;
  for (const Span& span : run.spans) {
    computes += span.name == "compute";
    waits += span.name == "wait";
    messages += span.peer >= 0 && span.link < 0;
    links += span.link >= 0;
    if (span.link >= 0) {
      EXPECT_NEAR(span.end - span.begin, 1e-3, 1e-9);
    }
  }
  EXPECT_EQ(computes, 2);
  EXPECT_EQ(waits, 2);
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(links, 4);  // each message leaves a rank and enters the other
}

TEST(Simulate, OneCallOfTheHostSendsTheMessagesOfACollective) {
  const auto seconds = [](const char* second) {
    Recorder recorder(2);
    tensor::RunWatcher* const watcher = recorder.root()->of_rank(0);
    watcher->part("step", 0);
    watcher->sends(1, 7, 8, "exchange", 0, 1);
    watcher->sends(1, 7, 8, second, 0, 1);
    watcher->op("matmul", 1e9, 0, {128, 128, 128, tensor::DType::bf16});
    watcher->part("", 0);
    recorder.root()->of_rank(1)->part("step", 0);
    Cluster cluster = plain();
    cluster.software.host_message_seconds = 1e-2;
    return simulate(recorder.take(1, 1), cluster).seconds;
  };
  EXPECT_NEAR(seconds("exchange"), 11e-3, 1e-9);
  EXPECT_NEAR(seconds("other"), 21e-3, 1e-9);
}

}  // namespace
}  // namespace tessera::planner
