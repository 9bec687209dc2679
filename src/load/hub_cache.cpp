#include "load/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/input_file.h"
#include "base/is_there.h"

namespace tessera::load {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestRevision = 128;

// Allows letters, digits and "._-"; no path separators.
bool is_plain(const std::string& name) {
  return !name.empty() && name.size() <= 96 && name.front() != '.' && name.front() != '-' &&
         name.find("..") == std::string::npos && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string main_revision(const fs::path& repository) {
  const std::string path = (repository / "refs/main").string();
  if (!base::is_there(path)) return "";
  std::string revision = base::read_file(path, kLongestRevision);
  revision.erase(revision.find_last_not_of("\r\n ") + 1);
  return is_plain(revision) ? revision : "";
}

}  // namespace

bool is_repository_id(const std::string& text) {
  const size_t slash = text.find('/');
  return slash != std::string::npos && is_plain(text.substr(0, slash)) &&
         is_plain(text.substr(slash + 1));
}

std::string hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = variable(name); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty())
    return caches + "/huggingface/hub";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

std::string cached_snapshot(const std::string& cache, const std::string& id) {
  if (cache.empty() || !is_repository_id(id)) return "";
  const size_t slash = id.find('/');
  const fs::path repository =
      fs::path(cache) / ("models--" + id.substr(0, slash) + "--" + id.substr(slash + 1));
  const fs::path snapshots = repository / "snapshots";
  const std::string revision = main_revision(repository);
  if (!revision.empty() && is_folder(snapshots / revision)) return (snapshots / revision).string();
  std::string newest;
  fs::file_time_type latest{};
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(snapshots, ignored)) {
    if (!is_folder(item.path())) continue;
    const fs::file_time_type time = fs::last_write_time(item.path(), ignored);
    if (newest.empty() || time > latest) {
      newest = item.path().string();
      latest = time;
    }
  }
  return newest;
}

}  // namespace tessera::load
