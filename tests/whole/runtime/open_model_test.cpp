#include "runtime/open_model.h"

#include <gtest/gtest.h>

#include <fstream>

#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

TEST(OpenModel, RefusesWhatIsNoModel) {
  const golden::Scratch scratch;
  const auto refusal = [](const std::string& folder) {
    runtime::ModelState state;
    return golden::error_of(
        [&] { runtime::open_model(folder, golden::options(Precision::f32), state); });
  };
  EXPECT_NE(refusal(scratch / "none").find("does not exist"), std::string::npos);
  EXPECT_NE(refusal(scratch / "").find("neither"), std::string::npos);
  std::ofstream(scratch / "config.json") << R"({"model_type": "unet"})";
  EXPECT_NE(refusal(scratch / "").find("not supported"), std::string::npos);
}

TEST(OpenModel, OpensAPublishedModelByItsSizes) {
  runtime::ModelState state;
  runtime::open_published("flux_dev", {.threads = 1}, state);
  EXPECT_TRUE(state.spec.has_value());
  EXPECT_TRUE(state.folder.has("vae"));
}

}  // namespace
}  // namespace tessera
