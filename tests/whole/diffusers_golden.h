#pragma once

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// Folders of reference cases: those that travel with the tests, and those of a whole reference
/// set if the environment names one (TESSERA_GOLDEN). Only those that hold `file`; throws if they
/// are fewer than travel with the tests.
inline std::vector<std::string> diffusers_cases(const std::string& file, size_t least) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  std::vector<std::string> roots{TESSERA_TEST_DATA "/diffusers"};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    roots.insert(roots.begin(), std::string(more) + "/diffusers");
  for (const std::string& root : roots)
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (std::filesystem::exists(entry.path() / file) &&
          seen.insert(entry.path().filename().string()).second)
        found.push_back(entry.path().string());
  if (found.size() < least)
    throw std::runtime_error(file + ": " + std::to_string(found.size()) + " cases, expected " +
                             std::to_string(least));
  return found;
}

}  // namespace tessera::golden
