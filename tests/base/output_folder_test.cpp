#include "base/output_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tessera/error.h"

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string refusal(const std::string& path) const {
    try {
      OutputFolder out(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(OutputFolderTest, AppearsWhole) {
  for (const char* name : {"a", "b/"}) {
    OutputFolder out((folder_ / name).string());
    std::ofstream(fs::path(out.beside()) / "file") << "text";
    EXPECT_FALSE(fs::exists(folder_ / name));
    out.commit();
    EXPECT_TRUE(fs::exists(folder_ / name / "file"));
  }
  EXPECT_EQ(entries(), 2u);
}

TEST_F(OutputFolderTest, LeavesNothingWithoutCommit) {
  {
    OutputFolder out((folder_ / "a").string());
    std::ofstream(fs::path(out.beside()) / "file") << "text";
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OutputFolderTest, LeavesWhatCameMeanwhile) {
  {
    OutputFolder out((folder_ / "a").string());
    std::ofstream(folder_ / "a") << "another's";
    EXPECT_THROW(out.commit(), Error);
  }
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(fs::is_regular_file(folder_ / "a"));
  OutputFolder out((folder_ / "b").string());
  fs::create_directory(folder_ / "b");
  EXPECT_THROW(out.commit(), Error);
}

TEST_F(OutputFolderTest, NamesAPathThatCannotBe) {
  fs::create_directory(folder_ / "there");
  std::ofstream(folder_ / "file") << "";
  fs::create_symlink("nowhere", folder_ / "link");
  for (const char* name : {"there", "there/", "file", "link"})
    EXPECT_NE(refusal((folder_ / name).string()).find("exists already"), std::string::npos) << name;
  EXPECT_NE(refusal((folder_ / "no/where").string()).find("make its folder first"),
            std::string::npos);
  EXPECT_NE(refusal((folder_ / "file/x").string()).find("is a file"), std::string::npos);
  EXPECT_EQ(entries(), 3u);
}

}  // namespace
}  // namespace tessera::base
