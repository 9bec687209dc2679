#include "models/registry.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(Registry, MakesWhatItNames) {
  for (const auto& [name, config] : named_sizes())
    EXPECT_EQ(make_recipe("dit_moe", config, name)->classes(), 1000);
}

TEST(Registry, ListsWhatIsKnown) {
  try {
    make_recipe("unet", {}, "x/config.json");
    FAIL() << "an unknown family was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("dit_moe"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("x/config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::models
