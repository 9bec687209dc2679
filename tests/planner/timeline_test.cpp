#include "planner/timeline.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "planner/small_recording.h"

namespace tessera::planner {
namespace {

Simulation run() {
  Cluster cluster;
  cluster.device.flops = {{"bf16", 1e12}};
  cluster.device.memory_bandwidth = 1e12;
  cluster.devices = 2;
  cluster.link = {1e9, 0};
  return simulate(two_ranks(2, 2, 1'000'000), cluster, true);
}

TEST(Timeline, IsATraceThatChromeReads) {
  const base::Json trace = base::Json::parse(trace_of(run()));
  double end = 0;
  int lanes = 0;
  for (const base::Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") ++lanes;
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X");
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_EQ(lanes, 8);        // ranks, their messages and two links a rank have lanes
  EXPECT_NEAR(end, 4000, 1);  // microseconds
}

TEST(Timeline, IsAnImageWithALaneForEachRank) {
  const std::string svg = image_of(run());
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_NE(svg.find("rank 1"), std::string::npos);
  EXPECT_NE(svg.find("out 1"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace tessera::planner
