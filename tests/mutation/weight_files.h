#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/weight_files.h"

namespace tessera::mutation {

/// A folder without the weights of its network, which are in a file.
struct FolderWithFile {
  std::filesystem::path folder;
  std::string file;  ///< relative to the folder; kAlone: the whole model
};
inline constexpr const char* kAlone = "alone.gguf";

/// Makes folders with GGUF files (a transformer and a language model, in blocks, and a language
/// model alone) and a single safetensors file from shipped and test models.
std::vector<FolderWithFile> folders_with_files(const std::filesystem::path& scratch);

/// The model in a folder with such a file: the folder, or the file.
std::string model_in(const std::filesystem::path& folder, const std::string& file);
/// The file as the weights of the folder; "", kAlone: none.
WeightFiles files_in(const std::filesystem::path& folder, const std::string& file);

}  // namespace tessera::mutation
