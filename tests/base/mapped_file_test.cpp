#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/error.h"

namespace tessera::base {
namespace {

TEST(MappedFile, HoldsTheBytes) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tessera-map-" + std::to_string(getpid()));
  std::ofstream(path) << "four";
  {
    const MappedFile file(path.string());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "four");
  }
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(MappedFile(path.string()).size(), 0u);
  std::filesystem::remove(path);
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  EXPECT_THROW(MappedFile("/nowhere"), Error);
  EXPECT_THROW(MappedFile("/"), Error);
  EXPECT_THROW(MappedFile("/dev/null"), Error);
}

}  // namespace
}  // namespace tessera::base
