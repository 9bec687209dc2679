#include "media/read_image.h"
#include "ops/permute.h"
#include "whole/diffusers_golden.h"

// Image-to-image and inpainting runs against diffusers.
namespace tessera {
namespace {

using base::Json;
using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

// The cases of the test data, and those of a whole reference set (TESSERA_GOLDEN).
std::vector<std::string> roots() {
  std::vector<std::string> found{TESSERA_TEST_DATA "/features/image"};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    if (const std::string root = std::string(more) + "/features/image";
        std::filesystem::exists(root))
      found.push_back(root);
  return found;
}

struct ImageRun {
  std::string root, model;
  Json arguments;

  bool supported() const {
    return !arguments.contains("padding_mask_crop") && std::filesystem::exists(model);
  }
  GenerateRequest request(const Scratch& scratch) const {
    GenerateRequest q;
    q.clean_caption = false;
    if (std::filesystem::exists(model + "/tokenizer")) {
      q.prompts = {arguments["prompt"].get<std::string>()};
      if (arguments["negative_prompt"].is_string())
        q.negative_prompt = arguments["negative_prompt"].get<std::string>();
      q.text_tokens = arguments["max_sequence_length"];
    } else {
      // The prompt in max_sequence_length tokens, encoded by transformers.
      q.embeddings = root + "/text_" + arguments["model"].get<std::string>() + ".safetensors";
    }
    q.images = {{.file = root + "/" + arguments["image"].get<std::string>()}};
    if (arguments.contains("mask"))
      q.mask = InputImage{.file = root + "/" + arguments["mask"].get<std::string>()};
    q.strength = arguments["strength"].get<double>();
    q.steps = arguments["num_inference_steps"].get<int>();
    q.guidance = arguments["guidance_scale"].get<float>();
    q.width = arguments["width"];
    q.height = arguments["height"];
    q.count = arguments["count"];
    q.seed = arguments["generator_seed"];
    q.trace = scratch / "trace.safetensors";
    return q;
  }
};

std::vector<ImageRun> runs() {
  std::vector<ImageRun> all;
  for (const std::string& root : roots()) {
    const Json described = base::read_json(root + "/case.json");
    for (const Json& run : described["runs"]) {
      const Json& model = described["models"][run["model"].get<std::string>()];
      ImageRun one{root, root + "/" + model["model"].get<std::string>(), run};
      if (one.supported()) all.push_back(std::move(one));
    }
  }
  return all;
}

void compare(const ImageRun& run, const GenerateResult& result, const SafetensorsFile& trace) {
  const SafetensorsFile io(run.root + "/" + run.arguments["io"].get<std::string>());
  const std::string prefix = run.arguments["prefix"];
  const int steps = run.arguments["steps_run"];
  EXPECT_EQ(result.steps, steps);
  EXPECT_EQ(trace.get("timesteps").to_floats(), io.get(prefix + "timesteps").to_floats());
  for (int i = 1; i <= steps; ++i) {
    const std::string name = "latents." + std::to_string(i);
    EXPECT_LT(golden::l2_error(trace.get(name).to_floats(), io.get(prefix + name).to_floats()),
              1e-3)
        << name;
  }
  const std::string right = prefix + "image.with_shift.u8";
  const std::string pixels = io.has(right) ? right : prefix + "image.u8";
  if (!io.has(pixels)) return;
  std::vector<uint8_t> mine;
  for (const Image& image : result.images)
    mine.insert(mine.end(), image.rgb.begin(), image.rgb.end());
  const Tensor expected = io.get(pixels);
  ASSERT_EQ(std::ssize(mine), expected.elements());
  for (size_t i = 0; i < mine.size(); ++i)
    ASSERT_LE(std::abs(int(mine[i]) - int(expected.data<uint8_t>()[i])), 1) << i;
}

TEST(ImageGolden, RunsFromAnImageAreThoseOfDiffusers) {
  const std::vector<ImageRun> all = runs();
  EXPECT_GE(all.size(), 2u) << "those that travel with the tests";
  for (const ImageRun& run : all) {
    SCOPED_TRACE(run.root + " " + run.arguments["prefix"].get<std::string>());
    const Scratch scratch;
    const GenerateRequest q = run.request(scratch);
    const GenerateResult result =
        Model::open(run.model, golden::options(Precision::f32)).generate(q);
    compare(run, result, SafetensorsFile(q.trace));
  }
}

// FLUX.2-klein's inpainting with the image as a reference, too; made by tools/make_klein_golden.py.
TEST(ImageGolden, KleinPaintsInAsDiffusersDoes) {
  const std::string root = TESSERA_TEST_DATA "/features/klein/";
  const std::string klein = TESSERA_TEST_DATA "/diffusers/flux2_klein_base/";
  const SafetensorsFile io(root + "io.safetensors");
  const Json all = base::read_json(root + "case.json")["runs"];
  EXPECT_GE(all.size(), 2u);
  for (size_t r = 0; r < all.size(); ++r) {
    const Json& run = all[r];
    SCOPED_TRACE(run.dump());
    const Scratch scratch;
    GenerateRequest q;
    q.prompts = {run["prompt"].get<std::string>()};
    q.text_tokens = 32;
    q.images.assign(run["reference"].get<bool>() ? 2 : 1, {.file = klein + "reference.png"});
    q.mask = InputImage{.file = root + "mask.png"};
    q.strength = run["strength"].get<double>();
    q.steps = run["steps"].get<int>();
    q.guidance = run["guidance"].get<float>();
    q.seed = run["seed"];
    q.count = run["count"];
    q.trace = scratch / "trace.safetensors";
    const GenerateResult result =
        Model::open(klein + "model", golden::options(Precision::f32)).generate(q);
    EXPECT_EQ(result.steps, run["steps_run"].get<int>());
    const SafetensorsFile trace(q.trace);
    for (int i = 1; i <= result.steps; ++i) {
      const std::string name = "latents." + std::to_string(i);
      const Tensor expected = io.get(std::to_string(r) + "." + name);  // tokens
      const Tensor made = trace.get(name);                             // channels first
      const int64_t sizes[] = {made.size(0), made.size(1), made.size(2) * made.size(3)};
      const int order[] = {0, 2, 1};
      const Tensor tokens = ops::permute(made, sizes, order, expected.shape());
      EXPECT_LT(golden::max_error(tokens.to_floats(), expected.to_floats()), 1e-3) << name;
    }
  }
}

// Z-Image's pipelines take the size of the image, rounded down to 16.
TEST(ImageGolden, RunsOfZImageHaveTheSizeOfTheirImage) {
  GenerateRequest q;
  q.prompts = {"a cat"};
  q.images = {{.file = TESSERA_TEST_DATA "/features/image/image.png"}};  // 95 x 50
  q.strength = 0.5;
  q.steps = 2;
  const auto images = Model::open(TESSERA_TEST_DATA "/diffusers/z_image_turbo/model",
                                  golden::options(Precision::f32))
                          .generate(q)
                          .images;
  EXPECT_EQ(images.front().width, 80);
  EXPECT_EQ(images.front().height, 48);
}

// Bits of two plans, from the same image and mask.
TEST(ImageGolden, PlansGiveTheSameBits) {
  const ImageRun run = runs().at(1);
  ASSERT_TRUE(run.arguments.contains("mask"));
  const auto latents = [&](const std::string& plan) {
    const Scratch scratch;
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    GenerateRequest q = run.request(scratch);
    q.trace.clear();
    q.decode = false;
    return Model::open(run.model, options).generate(q).latents;
  };
  const std::vector<float> one = latents("");
  for (const char* plan : {"ulysses=2", "pipefusion=2,patches=2,warmup=3"})
    EXPECT_EQ(latents(plan), one) << plan;
}

}  // namespace
}  // namespace tessera
