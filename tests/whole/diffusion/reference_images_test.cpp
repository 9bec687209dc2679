#include "diffusion/reference_images.h"

#include <functional>

#include "media/png.h"
#include "whole/diffusers_golden.h"

// Reference images beside the noise. Golden runs are in whole/golden/pipeline_golden_test.cpp.
namespace tessera {
namespace {

const std::string kKlein = TESSERA_TEST_DATA "/diffusers/flux2_klein_base/model";

InputImage image_of(int width, int height, int seed) {
  InputImage image;
  image.pixels.width = width;
  image.pixels.height = height;
  for (int i = 0; i < width * height * 3; ++i)
    image.pixels.rgb.push_back(static_cast<uint8_t>((i * 37 + seed * 101 + i / 190 * 13) % 256));
  return image;
}

GenerateRequest two_references() {
  GenerateRequest q;
  q.prompts = {"an owl", "a cat"};
  q.text_tokens = 32;
  q.images = {image_of(80, 64, 1), image_of(70, 99, 2)};
  q.width = 48, q.height = 64;
  q.steps = 3;
  q.guidance = 3.0f;
  q.decode = false;
  return q;
}

std::vector<float> latents(const GenerateRequest& q, const std::string& plan = "",
                           Precision precision = Precision::f32) {
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  return Model::open(kKlein, options).generate(q).latents;
}

std::string refusal(const GenerateRequest& q, const std::string& model = kKlein) {
  try {
    Model::open(model, golden::options(Precision::f32)).generate(q);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "nothing was refused";
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  return golden::l2_error(a, b);
}

TEST(ReferenceImages, AllAndTheirOrderChangeTheImage) {
  GenerateRequest q = two_references();
  const auto both = latents(q);
  std::swap(q.images[0], q.images[1]);
  EXPECT_GT(distance(latents(q), both), 1e-3);
  q = two_references();
  q.images.pop_back();
  EXPECT_GT(distance(latents(q), both), 1e-3);
  q.images.clear();
  EXPECT_GT(distance(latents(q), both), 1e-3);
}

TEST(ReferenceImages, GiveTheBitsOfOneRankUnderPlans) {
  const GenerateRequest q = two_references();
  const auto one = latents(q), narrow = latents(q, "", Precision::bf16);
  for (const char* plan : {"cfg=2", "ulysses=2", "ulysses=4", "cfg=2,ulysses=2", "data=2",
                           "shard=2", "shard=2,ulysses=2", "pipefusion=2,patches=2,warmup=3"}) {
    EXPECT_EQ(latents(q, plan), one) << plan;
    EXPECT_EQ(latents(q, plan, Precision::bf16), narrow) << plan;
  }
  for (const char* plan : {"tensor=2", "ring=2", "tensor=2,ring=2"})
    EXPECT_LT(distance(latents(q, plan), one), 1e-5) << plan;
}

TEST(ReferenceImages, OfARunWithoutASizeSayIt) {
  GenerateRequest q = two_references();
  q.width = q.height = 0;
  q.prompts.pop_back();
  q.decode = true;
  q.steps = 1;
  const auto size = [&] {
    const auto images = Model::open(kKlein, golden::options(Precision::f32)).generate(q).images;
    return std::pair(images.front().width, images.front().height);
  };
  EXPECT_EQ(size(), (std::pair<int64_t, int64_t>(80, 64))) << "that of the first";
  q.images.erase(q.images.begin());
  EXPECT_EQ(size(), (std::pair<int64_t, int64_t>(64, 96))) << "cut to multiples of 16";
  q.height = 48;
  EXPECT_EQ(size(), (std::pair<int64_t, int64_t>(64, 48)));
}

// With a start image, the first image is the start and the others are references.
TEST(ReferenceImages, StandBehindTheImageThatARunStartsFrom) {
  GenerateRequest q = two_references();
  q.strength = 0.7;
  const auto both = latents(q);
  q.images.pop_back();
  const auto start = latents(q);
  EXPECT_GT(distance(start, both), 1e-3);
  q.strength.reset();
  EXPECT_GT(distance(latents(q), start), 1e-3);
}

TEST(ReferenceImages, OfWrongSizesAreRefused) {
  GenerateRequest q = two_references();
  q.images[1] = image_of(63, 80, 1);
  EXPECT_EQ(refusal(q),
            "`image` 2: a reference image of 63 x 80 pixels; expected sides of at least 64, one at "
            "most 8 times the other");
  q.images[1] = image_of(64, 513, 1);
  EXPECT_NE(refusal(q).find("`image` 2: a reference image of 64 x 513"), std::string::npos);
  q.images[1].pixels.rgb.pop_back();
  EXPECT_NE(refusal(q).find("`image` 2: an image of 64 x 513"), std::string::npos);
  q.images.assign(1, {.bytes = "no image"});
  EXPECT_NE(refusal(q).find("'image 1'"), std::string::npos);
}

TEST(ReferenceImages, OfModelsThatTakeNoneAreRefused) {
  GenerateRequest q = two_references();
  q.text_tokens = 0;
  EXPECT_NE(refusal(q, "scenes").find("`image` was given 2 times"), std::string::npos);
}

// A dry run includes reference images: the run takes the predicted memory.
TEST(ReferenceImages, ArePredicted) {
  GenerateRequest q = two_references();
  q.prompts.pop_back();
  q.text_tokens = 512;
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("ulysses=2");
  Model model = Model::open(kKlein, options);
  GenerateRequest none = q;
  none.images.clear();
  const Inspection with = model.inspect(q), without = model.inspect(none);
  EXPECT_GT(with.flops_per_step, without.flops_per_step);
  const Report did = model.generate(q).report;
  for (size_t r = 0; r < 2; ++r) {
    const MemoryPeaks& peak = did.per_rank.at(r).peak_bytes;
    EXPECT_EQ(peak.total, with.ranks.at(r).total) << r;
    EXPECT_GT(with.ranks[r].tokens, without.ranks.at(r).tokens) << r;
  }
}

}  // namespace
}  // namespace tessera
