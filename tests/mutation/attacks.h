#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace tessera::mutation {

using Random = std::mt19937_64;

/// The relative paths of a model folder's files, in alphabetic order.
std::vector<std::string> files_of(const std::filesystem::path& folder);

/// Changes a file of a folder: flips, cuts, doubles or removes bytes; replaces a value of a JSON;
/// or attacks a kind of file. Returns a short description.
std::string attack(const std::filesystem::path& folder, const std::vector<std::string>& files,
                   Random& random);

}  // namespace tessera::mutation
