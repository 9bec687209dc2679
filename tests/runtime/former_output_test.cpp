#include "runtime/former_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "load/safetensors.h"

namespace tessera::runtime {
namespace {

namespace fs = std::filesystem;

class FormerOutputTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& text) const {
    std::ofstream(folder_ / "x") << text;
    return (folder_ / "x").string();
  }
  fs::path folder_;
};

TEST_F(FormerOutputTest, TensorsSayTheirKind) {
  const std::string path = (folder_ / "x").string();
  const std::map<std::string, tensor::Tensor> tensors{
      {"latents", tensor::Tensor::empty({2}, tensor::DType::f32)}};
  const FileKind kinds[] = {FileKind::latents, FileKind::trace, FileKind::tensors};
  for (const FileKind kind : kinds) {
    load::write_safetensors(path, tensors, tensors_metadata(kind));
    for (const FileKind asked : kinds)
      EXPECT_EQ(is_former_output(path, asked), asked == kind) << int(kind) << " " << int(asked);
    EXPECT_FALSE(is_former_output(path, FileKind::image));
  }
  load::write_safetensors(path, tensors, {{"format", "pt"}});
  for (const FileKind kind : kinds) EXPECT_FALSE(is_former_output(path, kind));
}

TEST_F(FormerOutputTest, ReportsSayTheProgram) {
  EXPECT_TRUE(is_former_output(file("{\n \"program\": \"Tessera\",\n \"plan\": \"\"\n}\n"),
                               FileKind::report));
  EXPECT_TRUE(
      is_former_output(file("{\n  \"a\": 1,\n  \"program\": \"Tessera\"\n}"), FileKind::report));
  for (const char* text : {"", "{}", "{\"_class_name\": \"Transformer\"}",
                           "{\"text\": \"\\n \\\"program\\\": \\\"Tessera\\\"\"}", "program"})
    EXPECT_FALSE(is_former_output(file(text), FileKind::report)) << text;
}

TEST_F(FormerOutputTest, ListsOfPlansSayWhatTheyCount) {
  const std::string line = R"({"flops":1,"plan":"","rank_bytes":1,"step_seconds":null})";
  EXPECT_TRUE(is_former_output(file(line + "\n" + line + "\n"), FileKind::plan_costs));
  EXPECT_FALSE(is_former_output(file("{\"plan\": 1}\n" + line), FileKind::plan_costs));
}

TEST_F(FormerOutputTest, WhatCannotBeReadIsNone) {
  for (const std::string& path : {(folder_ / "none").string(), folder_.string()})
    for (int kind = 0; kind <= int(FileKind::store); ++kind)
      EXPECT_FALSE(is_former_output(path, static_cast<FileKind>(kind)));
}

}  // namespace
}  // namespace tessera::runtime
