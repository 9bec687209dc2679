#include "base/input_file.h"
#include "golden.h"

namespace tessera {
namespace {

TEST(SaveText, WritesWholeFilesOnly) {
  const golden::Scratch scratch;
  save_text("twelve bytes", scratch / "x");
  EXPECT_EQ(base::read_file(scratch / "x", 100), "twelve bytes");
  EXPECT_THROW(save_text("x", scratch / "no/such/folder"), Error);
}

TEST(CheckWritable, AsksBeforeTheWork) {
  const golden::Scratch scratch;
  check_writable(scratch / "x");
  EXPECT_FALSE(std::filesystem::exists(scratch / "x"));
  EXPECT_THROW(check_writable(scratch / "no/such/folder"), Error);
}

}  // namespace
}  // namespace tessera
