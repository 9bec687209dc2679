#include "base/machine_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

namespace tessera::base {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class ControlGroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int64_t limit(const std::string& membership) {
    return control_group_limit(membership, root_.string());
  }
  fs::path root_;
};

TEST_F(ControlGroups, TheTightestGroupCounts) {
  write("a/b/memory.max", "max\n");
  write("a/memory.max", "4096\n");
  write("memory.max", "8192\n");
  EXPECT_EQ(limit("0::/a/b\n"), 4096);
  EXPECT_EQ(limit("0::/elsewhere\n"), 8192);
  EXPECT_EQ(limit("0::/\n"), 8192);
}

TEST_F(ControlGroups, TheOlderHierarchyCountsToo) {
  write("memory/a/memory.limit_in_bytes", "12345\n");
  EXPECT_EQ(limit("5:cpu,cpuacct:/b\n4:hugetlb,memory:/a\n"), 12345);
  EXPECT_EQ(limit("5:cpu,cpuacct:/a\n"), kNone);
}

TEST_F(ControlGroups, NoLimitAndNonsenseAreNone) {
  write("a/memory.max", "-1");
  write("memory.max", "what");
  for (const char* text : {"", "0::/a\n", "x\n", "0::", "::::\n", "0::///\n"})
    EXPECT_EQ(limit(text), kNone) << text;
}

TEST(UsableMemory, FollowsALimitOnAddressSpace) {
  const int64_t all = usable_memory();
  EXPECT_GT(all, int64_t{64} << 20);
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  struct rlimit tight = before;
  tight.rlim_cur = rlim_t(all / 2);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  EXPECT_EQ(usable_memory(), all / 2);
  setrlimit(RLIMIT_AS, &before);
}

}  // namespace
}  // namespace tessera::base
