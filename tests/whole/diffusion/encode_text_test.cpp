#include "diffusion/encode_text.h"

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using tensor::Tensor;

const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

GenerateRequest request(const std::string& prompt) {
  GenerateRequest q;
  q.prompts = {prompt};
  q.width = q.height = 32;
  q.frames = 1;
  q.steps = 1;
  q.guidance = 1;
  return q;
}

ErrorCode code = ErrorCode::usage;
std::string refusal(const std::string& model, const GenerateRequest& q) {
  try {
    Model::open(model, golden::options(Precision::f32)).generate(q);
  } catch (const Error& e) {
    code = e.code();
    return e.what();
  }
  return "nothing was refused";
}

TEST(EncodeText, TwoPromptsAreThoseOfTwoRuns) {
  GenerateRequest both = request("a red fox");
  both.prompts.push_back("");
  const auto run = [](const GenerateRequest& q) {
    return Model::open(kVideo, golden::options(Precision::f32)).generate(q);
  };
  const GenerateResult two = run(both), one = run(request("a red fox"));
  ASSERT_EQ(two.images.size(), 2u);
  EXPECT_EQ(two.images[0].label, "a red fox");
  EXPECT_EQ(two.images[0].rgb, one.images[0].rgb);
}

TEST(EncodeText, TakesAPromptOfAnyLength) {
  std::string longest;
  while (longest.size() < 100000) longest += "waves \xf0\x9f\x8c\x8a and \xff\xfe rocks ";
  EXPECT_EQ(refusal(kVideo, request(longest)), "nothing was refused");
}

}  // namespace
}  // namespace tessera
