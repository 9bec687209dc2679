#include "runtime/resolve_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "load/hub_cache.h"

namespace tessera::runtime {
namespace {

namespace fs = std::filesystem;

// Folders of shipped models: from the environment, beside an installed program, from the build.
std::vector<fs::path> roots() {
  std::vector<fs::path> folders;
  if (const char* models_path = std::getenv("TESSERA_MODELS"); models_path && *models_path)
    folders.emplace_back(models_path);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path().parent_path() / "share/tessera/models");
  folders.emplace_back(TESSERA_MODELS_DIR);
  return folders;
}

// "; shipped: shapes".
std::string known_models() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::path& root : roots())
    for (const auto& entry : fs::directory_iterator(root, ignored))
      if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names.empty() ? "" : fmt::format("; shipped: {}", fmt::join(names, ", "));
}

}  // namespace

std::string resolve_model(const std::string& model) {
  std::error_code ignored;
  if (model.empty() || fs::exists(model, ignored)) return model;
  if (load::is_repository_id(model)) {
    const std::string cache = load::hub_cache();
    const std::string snapshot = load::cached_snapshot(cache, model);
    require(!snapshot.empty(), ErrorCode::model,
            "the model folder '{}' does not exist here, nor is a repository of that name in {}: "
            "give a folder, or download it first with 'hf download {}'",
            model,
            cache.empty() ? "a hub cache (HF_HUB_CACHE, HF_HOME and HOME name none)"
                          : "the hub cache '" + cache + "'",
            model);
    return snapshot;
  }
  if (model.find('/') != std::string::npos) return model;
  for (const fs::path& root : roots())
    if (fs::is_directory(root / model, ignored)) return (root / model).string();
  fail(ErrorCode::model, "there is no model folder {} here, and no shipped model of that name{}",
       base::printable(model), known_models());
}

}  // namespace tessera::runtime
