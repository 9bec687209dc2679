#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "load/safetensors.h"
#include "models/registry.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// Whether this build has the transformer of a case: a reference set may hold newer families.
inline bool has_family(const std::string& folder) {
  const std::string index = folder + "/model/model_index.json";
  if (!std::filesystem::exists(index)) return true;
  const base::Json parts = base::read_json(index);
  for (const auto& family : models::pipelines())
    if (parts.contains("transformer") && parts["transformer"][1] == family.type) return true;
  return false;
}

/// Folders of reference cases: those in the test data, and those of a whole reference set if the
/// environment names a set (TESSERA_GOLDEN). Only folders with `file`, of families in this build
/// unless `any_family`; throws if there are fewer folders than in the test data.
inline std::vector<std::string> diffusers_cases(const std::string& file, size_t least,
                                                bool any_family = false) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  std::vector<std::string> roots{TESSERA_TEST_DATA "/diffusers"};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    roots.insert(roots.begin(), std::string(more) + "/diffusers");
  for (const std::string& root : roots)
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (std::filesystem::exists(entry.path() / file) &&
          (any_family || has_family(entry.path())) &&
          seen.insert(entry.path().filename().string()).second)
        found.push_back(entry.path().string());
  if (found.size() < least)
    throw std::runtime_error(file + ": " + std::to_string(found.size()) + " cases, expected " +
                             std::to_string(least));
  return found;
}

/// A file with the embeddings of `file` and, as the negative ones, the same numbers backwards.
inline std::string with_negative(const std::string& file, const Scratch& scratch) {
  const load::SafetensorsFile given(file);
  std::map<std::string, tensor::Tensor> all;
  for (const auto& [name, entry] : given.entries()) {
    all[name] = given.get(name);
    std::vector<float> numbers = all[name].to_floats();
    std::reverse(numbers.begin(), numbers.end());
    all["negative_" + name] =
        tensor::Tensor::from(std::span<const float>(numbers), all[name].shape());
  }
  const std::string path = scratch / "with_negative.safetensors";
  load::write_safetensors(path, all);
  return path;
}

}  // namespace tessera::golden
