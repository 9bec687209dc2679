#include "base/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "tessera/error.h"

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string text_of(const fs::path& path) {
    const MappedFile file(path.string());
    return {reinterpret_cast<const char*>(file.data()), file.size()};
  }
  size_t files() {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(OutputFileTest, AppearsWholeAndReplaces) {
  std::ofstream(folder_ / "a") << "old";
  OutputFile out((folder_ / "a").string());
  out.write("new text", 8);
  EXPECT_EQ(text_of(folder_ / "a"), "old");
  out.commit();
  EXPECT_EQ(text_of(folder_ / "a"), "new text");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
  { OutputFile((folder_ / "a").string()).write("half", 4); }
  EXPECT_EQ(files(), 0u);
}

TEST_F(OutputFileTest, NamesAPathThatCannotBeWritten) {
  for (const std::string& path : {std::string("/nowhere/a"), folder_.string()}) {
    try {
      OutputFile out(path);
      FAIL() << path << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
}

TEST_F(OutputFileTest, SaysWhatToDo) {
  for (const auto& [path, advice] :
       {std::pair<std::string, std::string>{folder_ / "none" / "a", "make its folder"},
        {folder_.string(), "name a file in it"}}) {
    try {
      check_writable(path);
      FAIL() << path << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(advice), std::string::npos) << e.what();
    }
  }
}

TEST_F(OutputFileTest, WritesToADeviceWithoutReplacingIt) {
  OutputFile null("/dev/null");
  null.write("text", 4);
  null.commit();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  OutputFile full("/dev/full");
  try {
    full.write("text", 4);
    FAIL() << "a full device was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("free some space"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(OutputFileTest, FollowsALink) {
  std::ofstream(folder_ / "real") << "old";
  fs::create_symlink("real", folder_ / "link");
  OutputFile out((folder_ / "link").string());
  out.write("new", 3);
  out.commit();
  EXPECT_EQ(text_of(folder_ / "real"), "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
}

TEST_F(OutputFileTest, ProbesWithoutATrace) {
  check_writable((folder_ / "a").string());
  check_writable("/dev/null");
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace tessera::base
