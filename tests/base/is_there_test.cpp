#include "base/is_there.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

TEST(IsThere, WhatIsNoFileIsNotMissing) {
  const fs::path path = fs::temp_directory_path() / ("tessera-there-" + std::to_string(getpid()));
  EXPECT_FALSE(is_there(path));
  std::ofstream(path) << "x";
  EXPECT_TRUE(is_there(path));
  EXPECT_FALSE(is_there(path / "below a file"));
  fs::remove(path);
  fs::create_symlink("nowhere", path);
  EXPECT_TRUE(is_there(path));
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(is_there(path));
  fs::remove(path);
  EXPECT_TRUE(is_there("/dev/null"));
  EXPECT_TRUE(is_there("/"));
}

}  // namespace
}  // namespace tessera::base
