#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "cluster/ranks.h"
#include "comm/collectives.h"
#include "tensor/run_watcher.h"
#include "tessera/prediction.h"

namespace tessera {
namespace {

using base::Json;

// Runs two ranks as threads: each rank sends a tensor to the other in each of two steps.
void run(const cluster::Ranks& ranks) {
  ranks.run([](int) { return tensor::Scope(); }, {},
            [](comm::Communicator* world) {
              tensor::watch_part("prepare");
              for (int step = 0; step < 2; ++step) {
                tensor::watch_part("step", step);
                auto pending = world->receive(1 - world->rank(), {"exchange", 0});
                world->send(1 - world->rank(),
                            tensor::Tensor::empty({4}, tensor::DType::f32, tensor::Device::meta),
                            {"exchange", 0});
                pending.wait();
              }
              tensor::watch_part("");
            });
}

std::vector<Json> spans_of(const RunTimeline& timeline) {
  std::vector<Json> spans;
  const Json trace = Json::parse(timeline.text(TimelineForm::trace));
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") spans.push_back(event);
  return spans;
}

TEST(RunTimeline, HasALaneForEachRankAndItsMessages) {
  const RunTimeline timeline;
  run(cluster::Ranks::threads(2, std::chrono::seconds(20)));
  int messages = 0;
  std::set<int> lanes;
  for (const Json& span : spans_of(timeline)) {
    lanes.insert(span.at("tid").get<int>());
    EXPECT_GE(span.at("ts").get<double>(), 0);
    EXPECT_GE(span.at("dur").get<double>(), 0);
    messages += span.at("name") == "exchange";
  }
  EXPECT_EQ(messages, 4);
  EXPECT_EQ(lanes, (std::set<int>{0, 1, 2, 3}));
  EXPECT_TRUE(timeline.text(TimelineForm::image).starts_with("<svg"));
}

TEST(RunTimeline, ASecondRunIsBehindTheFirst) {
  const RunTimeline timeline;
  const auto end_of = [&] {
    double end = 0;
    for (const Json& span : spans_of(timeline))
      end = std::max(end, span.at("ts").get<double>() + span.at("dur").get<double>());
    return end;
  };
  run(cluster::Ranks::threads(2, std::chrono::seconds(20)));
  const double first = end_of();
  run(cluster::Ranks::threads(2, std::chrono::seconds(20)));
  EXPECT_GT(end_of(), first);
}

TEST(RunTimeline, DryRunsAreNoPartOfIt) {
  const RunTimeline timeline;
  run(cluster::Ranks::meta(2, std::chrono::seconds(20)));
  EXPECT_TRUE(spans_of(timeline).empty());
}

}  // namespace
}  // namespace tessera
