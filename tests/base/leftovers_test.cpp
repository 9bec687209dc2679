#include "base/leftovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/output_file.h"
#include "base/output_folder.h"

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

class LeftoversTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  size_t entries() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // Kills a process while writing a file and a folder.
  void kill_a_writer() const {
    const pid_t child = fork();
    if (child == 0) {
      OutputFile file((folder_ / "a").string());
      OutputFolder folder((folder_ / "b").string());
      std::ofstream(fs::path(folder.beside()) / "inner") << "half";
      file.write("half", 4);
      raise(SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  fs::path folder_;
};

TEST_F(LeftoversTest, OfAKilledRunAreRemoved) {
  kill_a_writer();
  EXPECT_EQ(entries(), 2u);
  sweep_leftovers(folder_.string());
  EXPECT_EQ(entries(), 0u);
}

TEST_F(LeftoversTest, OfARunningOneStay) {
  OutputFile file((folder_ / "a").string());
  OutputFolder folder((folder_ / "b").string());
  sweep_leftovers(folder_.string());
  EXPECT_EQ(entries(), 2u);
  file.commit();
  folder.commit();
  sweep_leftovers(folder_.string());
  EXPECT_TRUE(fs::exists(folder_ / "a"));
  EXPECT_TRUE(fs::exists(folder_ / "b"));
}

TEST_F(LeftoversTest, WhatHasAnotherNameStays) {
  const std::string digits(16, 'a');
  for (const std::string& name :
       {".tessera-" + digits, ".tessera-" + digits + ".par", std::string(".tessera-notes.part"),
        ".tessera-" + std::string(15, 'a') + "g.part", "tessera-" + digits + ".part"})
    std::ofstream(folder_ / name) << "mine";
  fs::create_symlink("/", folder_ / (".tessera-" + digits + ".part"));
  sweep_leftovers(folder_.string());
  EXPECT_EQ(entries(), 6u);
  sweep_leftovers((folder_ / "none").string());
}

TEST_F(LeftoversTest, AWriterSeesThatItsFileWasSwept) {
  const std::string name = name_beside((folder_ / "a").string());
  const int writer = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(writer, 0);
  sweep_leftovers(folder_.string());
  EXPECT_EQ(entries(), 0u);
  EXPECT_FALSE(hold(writer));
  close(writer);
}

}  // namespace
}  // namespace tessera::base
