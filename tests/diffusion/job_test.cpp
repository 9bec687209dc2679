#include "diffusion/job.h"

#include <gtest/gtest.h>

namespace tessera::diffusion {
namespace {

TEST(Job, WorkIsTheSumOfItsOps) {
  const Work work{{"matmul", {1, 20, 3}}, {"norm", {4, 5, 6}}};
  EXPECT_EQ(flops_of(work), 25);
  EXPECT_EQ(flops_of({}), 0);
}

TEST(Job, APartDrawsTheNoiseOfTheWhole) {
  Job job;
  job.planned.labels = {"a", "b"};
  EXPECT_EQ(job.drawn_samples(), 2);
  job.planned.first_sample = 2;
  job.planned.all_samples = 5;
  EXPECT_EQ(job.drawn_samples(), 5);
}

TEST(Job, PackedLatentsAreDrawnAsImages) {
  Job job;
  job.planned.form = nn::LatentForm::packed;
  EXPECT_EQ(job.noise_form(), nn::LatentForm::image);
  job.planned.form = nn::LatentForm::video;
  EXPECT_EQ(job.noise_form(), nn::LatentForm::video);
}

}  // namespace
}  // namespace tessera::diffusion
