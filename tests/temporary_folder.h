#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace tessera {

/// A folder for the temporary files of one test program. Programs that ctest runs at the same time
/// may then use the same file names. The destructor removes the folder.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "tessera-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
    ::setenv("TMPDIR", path_.c_str(), 1);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  std::string path_;
};

}  // namespace tessera
