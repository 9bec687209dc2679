#include "runtime/model_pool.h"

#include <gtest/gtest.h>

#include <memory>

#include "pipeline/complete.h"
#include "pipeline/generate.h"
#include "runtime/open_model.h"
#include "whole/golden.h"

namespace tessera::pipeline {
namespace {

using Others = std::vector<runtime::MemoryReservation::ModelMemory>;

// A model that keeps some bytes until release.
struct Keeper {
  int64_t bytes = 0;
  runtime::PooledModel resident;
  Keeper(runtime::ModelPool& all, const std::string& name, int64_t keeps)
      : bytes(keeps), resident(all, {name, [this] { return bytes; }, [this] { bytes = 0; }}) {}
  // A run with `takes` bytes, after which the model keeps `keeps` bytes.
  bool run(int64_t takes, int64_t room, int64_t keeps) {
    runtime::MemoryReservation work(&resident);
    Others others;
    const bool ran = work.take(takes, keeps, room, others);
    if (ran) bytes = keeps;
    return ran;
  }
};

TEST(ModelPool, LetGoOfTheModelThatWasUsedTheLongestTimeAgo) {
  runtime::ModelPool all;
  Keeper a(all, "a", 0), b(all, "b", 0), c(all, "c", 0), d(all, "d", 0);
  EXPECT_TRUE(a.run(40, 100, 30) && b.run(40, 100, 30) && c.run(40, 100, 30));
  EXPECT_EQ(a.bytes + b.bytes + c.bytes, 90);
  EXPECT_TRUE(a.run(35, 100, 30)) << "what it keeps is part of what it takes";
  EXPECT_EQ(b.bytes, 30);
  EXPECT_TRUE(d.run(40, 100, 30));
  EXPECT_EQ(b.bytes, 0) << "the others had runs since";
  EXPECT_EQ(a.bytes + c.bytes, 60);
  EXPECT_TRUE(b.run(75, 100, 30));
  EXPECT_EQ(c.bytes + a.bytes + d.bytes, 0);
  EXPECT_TRUE(c.run(100, 100, 30));
}

TEST(ModelPool, KeepWhatIsAtWorkAndSayWhoThatIs) {
  runtime::ModelPool all;
  Keeper a(all, "a", 10), b(all, "b", 20), c(all, "c", 20);
  Others others;
  runtime::MemoryReservation first(&a.resident), second(&b.resident), third(&c.resident);
  EXPECT_TRUE(first.take(60, 50, 100, others));
  EXPECT_FALSE(second.take(41, 20, 100, others));
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].name, "a");
  EXPECT_EQ(others[0].bytes, 60);
  EXPECT_EQ(a.bytes + b.bytes + c.bytes, 50) << "who is refused makes nobody let go";
  EXPECT_FALSE(second.take(35, 20, 100, others, runtime::MemoryReservation::Idle::stay))
      << "c keeps too much";
  EXPECT_TRUE(others.empty());
  EXPECT_EQ(c.bytes, 20);
  EXPECT_TRUE(second.take(40, 20, 100, others));
  EXPECT_EQ(c.bytes, 0);
  EXPECT_FALSE(second.take(41, 20, 100, others)) << "more than it has";
  EXPECT_FALSE(third.take(1, 1, 100, others)) << "it still has that";
  EXPECT_EQ(others.size(), 2U);
  EXPECT_TRUE(second.take(20, 20, 100, others));
  b.bytes = 30;
  EXPECT_FALSE(third.take(11, 1, 100, others)) << "b keeps 30 bytes, whatever its run takes";
  EXPECT_TRUE(third.take(10, 1, 100, others));
}

TEST(ModelPool, RunsOfOneModelShareItsWeights) {
  runtime::ModelPool all;
  Keeper a(all, "a", 0);
  Others others;
  runtime::MemoryReservation first(&a.resident), second(&a.resident), third(&a.resident);
  EXPECT_TRUE(first.take(60, 50, 100, others));
  EXPECT_TRUE(second.take(90, 50, 100, others));
  EXPECT_FALSE(third.take(51, 50, 100, others));
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].bytes, 100);
}

TEST(ModelPool, EndWithTheirRunsAndWithThemselves) {
  runtime::ModelPool all;
  Keeper a(all, "a", 0);
  {
    Keeper gone(all, "gone", 80);
    Others others;
    runtime::MemoryReservation work(&gone.resident);
    EXPECT_TRUE(work.take(90, 80, 100, others));
    EXPECT_FALSE(a.run(20, 100, 5));
  }
  EXPECT_TRUE(a.run(100, 100, 5));
  Others others;
  EXPECT_TRUE(runtime::MemoryReservation(nullptr).take(1000, 1000, 1, others))
      << "of a model that counts for itself";
  EXPECT_TRUE(a.run(120, 100, 5)) << "alone it is admitted elsewhere";
}

// Shipped models of both kinds under a common budget.
struct Shipped {
  runtime::ModelState images, first, second;
  GenerateRequest image;
  CompleteRequest text;

  explicit Shipped(int64_t budget) {
    RunOptions options = golden::options(Precision::bf16);
    options.keep_parts = true;
    options.memory_budget = budget;
    runtime::open_model("shapes", options, images);
    runtime::open_model("tasks-a", options, first);
    runtime::open_model("tasks-b", options, second);
    image.classes = {"red circle"};
    image.seed = 3;
    image.steps = 2;
    text.prompts = {"sort hello="};
  }
  int64_t kept() const { return images.kept_bytes() + first.kept_bytes() + second.kept_bytes(); }
};

struct Made {
  std::vector<float> latents;
  std::vector<uint8_t> pixels;
  std::string first, second;
  bool operator==(const Made&) const = default;
};

// Runs all in turn; `ran` receives the peak of each.
Made all_of(Shipped& models,
            const std::function<void(int64_t peak, const runtime::ModelState&)>& ran) {
  Made made;
  GenerateResult image = generate(models.images, models.image, {});
  ran(image.report.peak_bytes.total, models.images);
  made.latents = std::move(image.latents);
  made.pixels = std::move(image.images.at(0).rgb);
  const auto told = [&](runtime::ModelState& state) {
    const CompleteResult result = pipeline::complete(state, models.text, {}, {});
    ran(result.peak_bytes.total, state);
    return result.completions.at(0).text;
  };
  made.first = told(models.first);
  made.second = told(models.second);
  return made;
}

TEST(ModelPool, ModelsThatFitOneAtATimeRunInTurn) {
  Made alone;
  int64_t most = 0, all = 0;
  {
    Shipped roomy(0);
    alone = all_of(roomy,
                   [&](int64_t peak, const runtime::ModelState&) { most = std::max(most, peak); });
    all = roomy.kept();
  }
  const int64_t budget = most * 11 / 10;  // the prediction slightly exceeds the measured memory
  ASSERT_LT(budget, all) << "not both fit";
  Shipped tight(budget);
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(all_of(tight,
                     [&](int64_t peak, const runtime::ModelState& ran) {
                       EXPECT_GT(ran.kept_bytes(), 0) << "it stays for the next request";
                       EXPECT_LE(tight.kept() - ran.kept_bytes() + peak, budget) << round;
                     }),
              alone);
}

TEST(ModelPool, AModelAtWorkIsNotReleasedAndTheOtherHearsOfIt) {
  int64_t most = 0;
  Made alone;
  {
    Shipped roomy(0);
    alone = all_of(roomy,
                   [&](int64_t peak, const runtime::ModelState&) { most = std::max(most, peak); });
  }
  Shipped tight(most * 11 / 10);
  std::string said;
  int64_t kept = 0;
  RunControl control;
  control.on_progress = [&](const Progress& p) {
    if (p.phase != Phase::denoise || p.step != 1) return;
    kept = tight.images.kept_bytes();
    try {
      pipeline::complete(tight.first, tight.text, {}, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::memory);
      said = error.what();
    }
    EXPECT_EQ(tight.images.kept_bytes(), kept);
  };
  EXPECT_EQ(generate(tight.images, tight.image, control).latents, alone.latents);
  EXPECT_GT(kept, 0);
  for (const char* part : {"this run would need about", "`memory_budget` allows", "'shapes'",
                           "what else is at work holds", "wait for its end"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(pipeline::complete(tight.first, tight.text, {}, {}).completions.at(0).text,
            alone.first);
}

}  // namespace
}  // namespace tessera::pipeline
