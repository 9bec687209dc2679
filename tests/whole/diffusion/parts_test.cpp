#include "diffusion/parts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "diffusion/plan_job.h"
#include "runtime/open_model.h"
#include "whole/golden.h"

namespace tessera::pipeline {
namespace {

std::vector<int64_t> sizes(const char* plan, int samples) {
  std::vector<int64_t> found;
  int64_t next = 0;
  for (const nn::Range part : diffusion::parts_of(parse_plan(plan), samples)) {
    EXPECT_EQ(part.begin, next) << plan;
    next = part.end;
    found.push_back(part.size());
  }
  EXPECT_EQ(next, samples) << plan;
  return found;
}

TEST(Parts, AreAsSmallAsRanksAllowTheLargerOnesFirst) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes("", 5), Sizes{5});
  EXPECT_EQ(sizes("ulysses=2,vae=2", 5), Sizes{5});
  EXPECT_EQ(sizes("vae=+1", 3), (Sizes{1, 1, 1}));
  EXPECT_EQ(sizes("data=2,vae=+1", 5), (Sizes{3, 2}));
  EXPECT_EQ(sizes("data=2,shard=2,cfg=2,vae=+1", 3), Sizes{3});
}

diffusion::Job job_of(int count) {
  GenerateRequest request;
  request.classes = {"1", "2"};
  request.count = count;
  request.steps = 1;
  runtime::ModelState state;
  runtime::open_model("shapes", golden::options(Precision::f32), state);
  return diffusion::plan_job(state, request);
}

TEST(Parts, KnowTheirPlaceInTheRequest) {
  const diffusion::Job whole = job_of(2), part = diffusion::part_of(whole, {1, 3});
  EXPECT_EQ(part.planned.labels, std::vector<std::string>(whole.planned.labels.begin() + 1,
                                                          whole.planned.labels.end() - 1));
  EXPECT_EQ(part.noise_shape(), whole.noise_shape()) << "drawn as for all";
  EXPECT_EQ(part.latent_shape()[0], 2);
  for (const auto& [name, x] : whole.asked.conditioning.tensors) {
    const tensor::Tensor& mine = part.asked.conditioning.tensors.at(name);
    ASSERT_EQ(mine.bytes(), x.bytes() / 2) << name;
    const auto two = static_cast<size_t>(x.bytes() / 4);  // two branches of four samples
    const auto *const all = static_cast<const char*>(x.raw()), *const some =
                                                                   static_cast<const char*>(
                                                                       mine.raw());
    EXPECT_EQ(std::memcmp(some, all + two / 2, two), 0) << name;
    EXPECT_EQ(std::memcmp(some + two, all + 5 * two / 2, two), 0) << name << ", unconditional";
  }
  EXPECT_EQ(part.workload().number(0), 1);
  EXPECT_EQ(part.workload().number(3), 6) << "the second branch of the second one";
}

TEST(Parts, ARankHasTheSequencesOfAllParts) {
  const diffusion::Job job = job_of(2);
  const Plan plan = parse_plan("data=2,cfg=2,vae=+1");  // parts {0, 1}, {2, 3}
  EXPECT_EQ(diffusion::sequences_of(plan, job, 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(diffusion::sequences_of(plan, job, 1), (std::vector<int>{4, 6}));
  EXPECT_EQ(diffusion::sequences_of(plan, job, 3), (std::vector<int>{5, 7}));
  EXPECT_EQ(diffusion::sequences_of(plan, job, 4), std::vector<int>{}) << "it only decodes";
}

}  // namespace
}  // namespace tessera::pipeline
