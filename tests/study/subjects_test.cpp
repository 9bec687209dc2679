#include "study/subjects.h"

#include <array>
#include <fstream>

#include "tessera/study.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::study {
namespace {

/// A folder of captions and nothing else.
class Captioned {
 public:
  explicit Captioned(const std::string& captions) {
    std::ofstream(scratch_ / "captions.json") << captions;
  }
  std::string path() const { return scratch_ / ""; }

 private:
  golden::Scratch scratch_;
};

// Draws a plain ground with a coloured square in the left or right half.
void put(Image& image, int from, std::array<uint8_t, 3> colour) {
  for (int y = 12; y < 20; ++y)
    for (int x = from; x < from + 8; ++x)
      std::copy(colour.begin(), colour.end(), image.rgb.begin() + (y * image.width + x) * 3);
}

TEST(Subjects, ClassesComeInTurn) {
  const auto subjects = subjects_of("shapes", 3);
  GenerateRequest request;
  for (int64_t i = 0; i < 4; ++i) subjects->ask(i, request);
  EXPECT_EQ(request.classes, (std::vector<std::string>{"0", "1", "2", "0"}));
  EXPECT_TRUE(request.prompts.empty());
}

TEST(Subjects, CaptionsComeInTurnAndAreJudged) {
  const Captioned model(
      R"(["a red square left of a blue square", "a red square right of a blue square"])");
  const auto subjects = subjects_of(model.path(), 0);
  GenerateRequest request;
  for (int64_t i = 0; i < 3; ++i) subjects->ask(i, request);
  EXPECT_EQ(request.prompts[1], "a red square right of a blue square");
  EXPECT_EQ(request.prompts[2], request.prompts[0]);
  Image image;
  image.width = image.height = 32;
  image.rgb.assign(32 * 32 * 3, 200);
  put(image, 4, {224, 30, 30});
  put(image, 20, {36, 66, 230});
  PlanQuality quality;
  EXPECT_EQ(subjects->judge({image, image, image}, 1000, quality),
            (std::vector<bool>{true, false, true}))
      << "the same image under both captions";
}

TEST(Subjects, ScenesAreMeasuredUnderPlans) {
  EvalRequest request;
  request.images = request.batch = 6;
  request.generate.steps = 12;
  request.plans = {parse_plan("data=2"), parse_plan("patches=8,warmup=1")};
  std::vector<PlanQuality> lines;
  evaluate("scenes", golden::options(Precision::bf16), request,
           [&](const PlanQuality& q) { lines.push_back(q); }, {});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GE(lines[0].recognised, 0.5) << "six captions that no training saw";
  EXPECT_EQ(lines[1].recognised, lines[0].recognised) << "rows alone change nothing";
  EXPECT_EQ(lines[1].recognised_change_half, 0) << "nor any image of them";
  EXPECT_NEAR(lines[2].recognised_change, lines[2].recognised - lines[0].recognised, 1e-12);
}

TEST(Subjects, RefusesWhatItCannotMeasure) {
  const auto refusal = [](const std::string& model) -> std::string {
    try {
      subjects_of(model, 0);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal(TESSERA_TEST_DATA "/diffusers/sd3/model").find("no captions.json"),
            std::string::npos);
  for (const char* captions : {"[]", "{}", "[1]", R"(["a house"])", "[", ""}) {
    const Captioned model(captions);
    EXPECT_NE(refusal(model.path()).find("captions.json"), std::string::npos) << captions;
  }
}

}  // namespace
}  // namespace tessera::study
