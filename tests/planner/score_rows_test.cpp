#include "planner/score_rows.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::planner {
namespace {

TEST(ScoreRows, ComputesSizesFromShapes) {
  PublishedRuns runs;
  const Scored heap = scored(runs, {{"metric", "symmetric_tensor_size"},
                                    {"value", 64.0},
                                    {"dtype", "fp32"},
                                    {"cond", {{"tokens", 4096}, {"experts", 16}}}});
  EXPECT_DOUBLE_EQ(*heap.predicted, 64);
  const Scored disk = scored(runs, {{"metric", "disk_size"},
                                    {"model", "PixArt-alpha"},
                                    {"cond", {{"component", "transformer"}}},
                                    {"unit", "GB"},
                                    {"value", 2.3}});
  EXPECT_LT(std::abs(disk.error), 0.02);
}

TEST(ScoreRows, SaysWhatIsNotPredicted) {
  PublishedRuns runs;
  EXPECT_THROW(scored(runs, {{"metric", "fid"}, {"value", 7.0}}), Error);
  EXPECT_THROW(scored(runs, {{"metric", "latency"}, {"value", 7.0}, {"usable", false}}), Error);
  EXPECT_THROW(scored(runs, {{"metric", "latency"}, {"value", 7.0}, {"model", "Latte"}}), Error);
}

}  // namespace
}  // namespace tessera::planner
