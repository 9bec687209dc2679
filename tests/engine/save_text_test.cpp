#include "golden.h"
#include "base/mapped_file.h"

namespace tessera {
namespace {

TEST(SaveText, WritesWholeFilesOnly) {
  const golden::Scratch scratch;
  save_text("twelve bytes", scratch / "x");
  EXPECT_EQ(base::MappedFile(scratch / "x").size(), 12u);
  EXPECT_THROW(save_text("x", scratch / "no/such/folder"), Error);
}

}  // namespace
}  // namespace tessera
