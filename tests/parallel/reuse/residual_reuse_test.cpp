#include "parallel/reuse/residual_reuse.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/reuse/ramp.h"
#include "parallel/reuse/rules.h"

namespace tessera::parallel {
namespace {

TEST(ResidualReuse, FirstBlockCacheComparesWithTheLastComputedStep) {
  const Ramp model({1, 1.04f, 1.08f, 1.1f, 1.5f});
  const StepReuse::Log log = model.run("fbcache,threshold=0.05");
  EXPECT_EQ(counts(log), "3 1 3 1 3");
  EXPECT_NEAR(log.changes[1], 0.04, 1e-6);
  EXPECT_NEAR(log.changes[2], 0.08, 1e-6);
  EXPECT_NEAR(log.changes[3], 0.02 / 1.08, 1e-6);
  EXPECT_TRUE(std::isnan(log.changes[0]));
  EXPECT_EQ(log.blocks_computed, 11);
  EXPECT_EQ(log.blocks_reused, 4);
}

TEST(ResidualReuse, AddsWhatTheLastComputedStepAdded) {
  const Ramp model({1, 1, 1, 1}, {5, 7, 9, 11});
  model.run("dbcache,warmup=1,threshold=0.5,max_cached=2");
  EXPECT_EQ(model.predicted, (std::vector<float>{7, 7, 7, 13}));
  const Ramp longer({1, 1, 1, 1, 1, 1}, {5, 7, 9, 11, 13, 15});
  longer.run("dbcache,warmup=4,threshold=0.5,taylor=1");
  EXPECT_EQ(longer.predicted, (std::vector<float>{7, 9, 11, 13, 15, 17}));
  longer.run("dbcache,warmup=3,threshold=0.5,taylor=1");  // no differences before step 3
  EXPECT_EQ(longer.predicted, (std::vector<float>{7, 9, 11, 11, 11, 11}));
}

TEST(ResidualReuse, AThresholdOfZeroReusesNoChange) {
  const Ramp model({1, 1.5f, 2, 2.5f});
  EXPECT_EQ(counts(model.run("fbcache,threshold=0")), "3 3 3 3");
  EXPECT_EQ(counts(model.run("dbcache,warmup=0,threshold=0")), "3 3 3 3");
  const std::vector<float> cached = model.last;
  EXPECT_EQ(counts(model.run("")), "");
  EXPECT_EQ(model.last, cached);
}

TEST(ResidualReuse, DualBlocksRunInEveryStep) {
  const Ramp model({1, 1, 1, 1, 1, 1});
  const StepReuse::Log log = model.run("dbcache,Fn=1,Bn=1,warmup=2,threshold=0.1");
  EXPECT_EQ(log.computed[1], (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(log.computed[2], (std::vector<int>{0, 2}));
  EXPECT_EQ(counts(model.run("dbcache,warmup=1,threshold=2,max_continuous=2")), "3 1 1 3 1 1");
  EXPECT_EQ(counts(model.run("dbcache,warmup=1,threshold=2,max_cached=3")), "3 1 1 1 3 3");
  EXPECT_EQ(counts(model.run("dbcache,warmup=5,warmup_interval=2,threshold=2")), "3 1 3 1 3 1");
  EXPECT_EQ(counts(model.run("dbcache,threshold=0.1,mask=101001,policy=static")), "3 1 3 1 1 3");
  EXPECT_EQ(counts(model.run("dbcache,max_cached=0,mask=101001,policy=static")), "3 1 3 1 1 3");
  EXPECT_EQ(counts(model.run("dbcache,threshold=0,mask=101001")), "3 3 3 3 3 3");
}

TEST(ResidualReuse, MagnitudesAreReadAtTheNearestStep) {
  const Ramp model({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(counts(model.run("magcache,ratios=1+1.02+1.02+1.02+1.02+1.02,threshold=0.05,"
                             "retention=0.2")),
            "3 0 3 0 3 0");
  EXPECT_EQ(counts(model.run("magcache,ratios=1,threshold=0.05,retention=0.5,max_skip=2")),
            "3 3 3 0 0 3");
}

TEST(ResidualReuse, TeaCacheAddsUpChangesOfEachStep) {
  const Ramp model({1, 1.1f, 1.21f, 1.331f, 1.4641f, 1.61051f});
  EXPECT_EQ(counts(model.run("teacache,coefficients=1+0,threshold=0.25")), "3 0 0 3 0 3");
}

/// A ramp whose negative branch has a first block of its own.
class TwoRamps final : public Ramp {
 public:
  TwoRamps(std::vector<float> first, std::vector<float> other)
      : Ramp(std::move(first)), other_(std::move(other)) {}
  void block(int index, const nn::StepContext& at, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override {
    const tensor::Tensor before = hidden.tokens.body;
    Ramp::block(index, at, placement, hidden, seams);
    const nn::Segments& held = placement.view.body;
    for (size_t t = 0; t < held.size() && index == 0; ++t) {
      if (held[t].sequence == 0) continue;
      tensor::Tensor own = before.slice(0, int64_t(t), int64_t(t) + 1);
      add(own, other_.at(static_cast<size_t>(step())));
      tensor::copy_into(hidden.tokens.body.slice(0, int64_t(t), int64_t(t) + 1), own);
    }
  }

 private:
  std::vector<float> other_;
};

TEST(ResidualReuse, BranchesDecideTogetherOrApart) {
  const TwoRamps model({1, 1, 1, 2, 2}, {1, 2, 2, 2, 4});
  EXPECT_EQ(counts(model.run("fbcache,threshold=0.1,branches=apart", 2)), "3 1 1 3 1");
  EXPECT_EQ(counts(model.negative), "3 3 1 1 3");
  EXPECT_EQ(model.predicted.size(), 10u) << "each branch has a pass of its own";
  const StepReuse::Log both = model.run("fbcache,threshold=0.1,branches=together", 2);
  EXPECT_EQ(counts(both), "3 3 1 3 3");
  EXPECT_TRUE(model.negative.computed.empty());
  EXPECT_NEAR(both.changes[1], 0.5, 1e-6) << "of both branches";
  const StepReuse::Log blind = model.run("magcache,ratios=1,branches=apart", 2);
  EXPECT_EQ(counts(blind), counts(model.negative));
  EXPECT_EQ(counts(model.run("fbcache,threshold=0.1,branches=apart")), "3 1 1 3 1")
      << "no guidance";
}

TEST(ResidualReuse, LastBlocksWithLongSkipsAreRefused) {
  nn::Geometry geometry;
  geometry.blocks = 4;
  geometry.skip_from = {-1, -1, 1, 0};
  check_step_cache(parse_step_cache("dbcache,Bn=1"), geometry, 5);
  EXPECT_THROW(check_step_cache(parse_step_cache("dbcache,Bn=2"), geometry, 5), Error);
}

}  // namespace
}  // namespace tessera::parallel
