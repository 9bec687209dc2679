#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace tessera::mutation {

using Random = std::mt19937_64;

/// The relative paths of a model folder's files, in alphabetic order.
std::vector<std::string> files_of(const std::filesystem::path& folder);

/// Changes one file of a folder in one way: bytes flipped, cut, doubled or left out; a value of a
/// JSON replaced; or an attack made for a kind of file. Returns what it did, in a few words.
std::string attack(const std::filesystem::path& folder, const std::vector<std::string>& files,
                   Random& random);

}  // namespace tessera::mutation
