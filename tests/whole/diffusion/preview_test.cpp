#include "diffusion/preview.h"

#include <gtest/gtest.h>

#include <atomic>

#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

using Bytes = std::vector<uint8_t>;

Model shapes(const std::string& plan = "", int64_t budget = 0) {
  RunOptions options = golden::options(Precision::bf16);
  options.plan = parse_plan(plan);
  options.memory_budget = budget;
  return Model::open("shapes", options);
}

GenerateRequest three_images() {
  GenerateRequest q;
  q.classes = {"1", "4", "9"};
  q.steps = 3;
  q.width = 96;
  return q;
}

RunControl asking(const std::function<void(const Progress&)>& denoising) {
  RunControl control;
  control.on_progress = [denoising](const Progress& p) {
    if (p.phase == Phase::denoise)
      denoising(p);
    else
      EXPECT_FALSE(p.preview) << word_of(p.phase);
  };
  return control;
}

std::vector<Bytes> pixels(const std::vector<Image>& images) {
  std::vector<Bytes> all;
  for (const Image& image : images) all.push_back(image.rgb);
  return all;
}

TEST(Preview, ShowsTheLatentOfItsStepUnderEveryPlan) {
  // The images of diffusers' callback: the latent after a number of steps, decoded.
  std::map<int, std::vector<Bytes>> alone;
  for (const char* plan : {"", "expert=2", "data=3", "distrifusion=2"}) {
    const Model model = shapes(plan);
    const GenerateResult plain = model.generate(three_images());
    std::map<int, std::vector<Bytes>> seen;
    const GenerateResult result = model.generate(three_images(), asking([&](const Progress& p) {
                                                   const std::vector<Image> made = p.preview();
                                                   ASSERT_EQ(made.size(), 3u);
                                                   EXPECT_EQ(made[1].label, plain.images[1].label);
                                                   EXPECT_EQ(made[1].width, 96);
                                                   seen[p.step] = pixels(made);
                                                 }));
    EXPECT_EQ(result.latents, plain.latents) << plan << ": looking changes nothing";
    EXPECT_EQ(seen.size(), 4u) << "noise, and after each step";
    EXPECT_EQ(seen.at(3), pixels(plain.images)) << plan;
    EXPECT_NE(seen.at(1), seen.at(2));
    if (alone.empty()) alone = seen;
    if (std::string(plan) != "distrifusion=2") {
      EXPECT_EQ(seen, alone) << plan;
    }
    EXPECT_EQ(seen.at(0), alone.at(0)) << plan;
  }
}

TEST(Preview, IsThereWithoutDecodingAndNotWithoutAVae) {
  GenerateRequest q = three_images();
  q.decode = false;
  int shown = 0;
  shapes().generate(q, asking([&](const Progress& p) { shown += int(p.preview().size()); }));
  EXPECT_EQ(shown, 12);
  const Model bare =
      Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", golden::options(Precision::f32));
  q.classes = {"1"};
  q.width = 0;
  std::string said;
  const auto result = bare.generate(q, asking([&](const Progress& p) {
                                      try {
                                        (void)p.preview();
                                      } catch (const Error& e) {
                                        EXPECT_EQ(e.code(), ErrorCode::model);
                                        said = e.what();
                                      }
                                    }));
  EXPECT_NE(said.find("has no VAE"), std::string::npos) << said;
  EXPECT_EQ(result.steps, 3) << "the run goes on";
}

TEST(Preview, KeepsToTheBudgetBesideAStreamedTransformer) {
  GenerateRequest q = three_images();
  const Report whole = shapes().generate(q).report;
  const auto previews_within = [&](int64_t budget) {
    int made = 0, refused = 0;
    const Report report =
        shapes("", budget)
            .generate(q, asking([&](const Progress& p) {
                        try {
                          made += int(p.preview().size());
                        } catch (const Error& e) {
                          EXPECT_EQ(e.code(), ErrorCode::memory) << e.what();
                          EXPECT_NE(std::string(e.what()).find("run holds"), std::string::npos)
                              << e.what();
                          ++refused;
                        }
                      }))
            .report;
    EXPECT_LE(report.peak_bytes.total, budget);
    return std::pair(made, refused);
  };
  EXPECT_EQ(previews_within(4 * whole.peak_bytes.total), std::pair(12, 0));
  int without = 0, with = 0;
  for (int tenths = 9; tenths >= 3; --tenths) try {
      const auto [made, refused] = previews_within(whole.peak_bytes.total * tenths / 10);
      EXPECT_EQ(made / 3 + refused, 4) << tenths;
      without += refused;
      q.previews = true;  // keep memory free; without spare memory as before
      const int still = previews_within(whole.peak_bytes.total * tenths / 10).second;
      q.previews = false;
      EXPECT_LE(still, refused) << tenths;
      with += still;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory) << "the run itself does not fit: " << e.what();
    }
  EXPECT_GT(without, with);
}

TEST(Preview, AStopWithinOneEndsTheRunOnAllRanks) {
  for (const char* plan : {"", "expert=2"}) {
    std::stop_source source;
    RunControl control = asking([&](const Progress& p) {
      if (p.step == 1) source.request_stop();
      (void)p.preview();
    });
    control.stop = source.get_token();
    try {
      shapes(plan).generate(three_images(), control);
      ADD_FAILURE() << plan << " was not stopped";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
    }
  }
}

TEST(Preview, IsRefusedAfterItsStep) {
  for (const char* plan : {"", "expert=2"}) {
    std::function<std::vector<Image>()> kept;
    shapes(plan).generate(three_images(), asking([&](const Progress& p) { kept = p.preview; }));
    EXPECT_NE(golden::error_of(kept).find("within the callback"), std::string::npos);
  }
}

TEST(Preview, OfAVideoIsItsFrames) {
  const golden::Scratch scratch;
  load::write_safetensors(
      scratch / "text.safetensors",
      {{"prompt_embeds", tensor::Tensor::zeros({1, 226, 32}, tensor::DType::f32)}});
  GenerateRequest q;
  q.embeddings = scratch / "text.safetensors";
  q.steps = 2;
  q.guidance = 1;
  q.width = q.height = 32;
  q.frames = 9;
  std::vector<Image> last;
  const auto result = Model::open(TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model",
                                  golden::options(Precision::bf16))
                          .generate(q, asking([&](const Progress& p) { last = p.preview(); }));
  ASSERT_EQ(last.size(), 9u);
  EXPECT_EQ(last[8].frame, 8);
  EXPECT_EQ(pixels(last), pixels(result.images));
}

}  // namespace
}  // namespace tessera
