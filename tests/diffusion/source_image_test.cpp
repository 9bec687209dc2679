#include "diffusion/source_image.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::diffusion {
namespace {

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(SourceImage, LeavesOutTheStepsThatDiffusersLeavesOut) {
  const base::Json described = base::read_json(TESSERA_TEST_DATA "/features/image/case.json");
  for (const base::Json& row : described["steps_of_strength"]) {
    GenerateRequest q;
    q.strength = row["strength"].get<double>();
    const int steps = row["num_inference_steps"], run = row["steps_run"];
    if (run == 0)
      EXPECT_NE(refusal_of([&] { left_out_steps({}, q, steps); }), "") << row.dump();
    else
      EXPECT_EQ(steps - left_out_steps({}, q, steps), run) << row.dump();
  }
}

TEST(SourceImage, RefusesAStrengthThatIsNone) {
  GenerateRequest q;
  q.strength = 1.5;
  EXPECT_EQ(refusal_of([&] { left_out_steps({}, q, 4); }),
            "`strength` 1.5: expected a number from 0 (the image as it is) to 1 (noise alone)");
  q.strength = std::nan("");
  EXPECT_NE(refusal_of([&] { left_out_steps({}, q, 4); }), "");
}

TEST(SourceImage, RefusesWhatNeedsAnImage) {
  GenerateRequest q;
  EXPECT_FALSE(starts_from_image({}, q));
  q.strength = 0.5;
  EXPECT_EQ(refusal_of([&] { starts_from_image({}, q); }),
            "`strength` is about an image that a run starts from: add `image` F");
  q = {};
  q.mask.emplace();
  EXPECT_NE(refusal_of([&] { starts_from_image({}, q); }).find("`mask`"), std::string::npos);
  q.images = {{.file = "x.png"}};
  EXPECT_TRUE(starts_from_image({}, q));
}

TEST(SourceImage, IsAReferenceUnlessARunStartsFromIt) {
  models::PipelineSpec spec;
  spec.takes_references = true;
  GenerateRequest q;
  q.images = {{.file = "x.png"}, {.file = "y.png"}};
  EXPECT_FALSE(starts_from_image(spec, q));
  q.strength = 0.5;
  EXPECT_TRUE(starts_from_image(spec, q));
  q.strength.reset();
  q.alpha_mask = true;
  EXPECT_TRUE(starts_from_image(spec, q));
}

TEST(SourceImage, HasTheUsualStrengthOfItsModel) {
  models::PipelineSpec spec;
  GenerateRequest q;
  EXPECT_EQ(left_out_steps(spec, q, 10), 4);
  spec.inpaint_strength = 0.8;
  EXPECT_EQ(left_out_steps(spec, q, 10), 4);
  q.mask.emplace();
  EXPECT_EQ(left_out_steps(spec, q, 10), 2);
}

}  // namespace tessera::diffusion
