#include "runtime/resolve_model.h"

#include <filesystem>

#include "whole/text_model.h"

namespace tessera::pipeline {
namespace {

TEST(ResolveModel, FindsFoldersAndShippedModels) {
  const golden::Scratch scratch;
  EXPECT_EQ(runtime::resolve_model(scratch / ""), scratch / "");
  EXPECT_TRUE(std::filesystem::is_directory(runtime::resolve_model("shapes")));
}

TEST(ResolveModel, NamesWhatIsShipped) {
  const std::string said = golden::error_of([] { runtime::resolve_model("no_such_model"); });
  EXPECT_NE(said.find("no_such_model"), std::string::npos);
  EXPECT_NE(said.find("shapes"), std::string::npos);
}

}  // namespace
}  // namespace tessera::pipeline
