#pragma once

#include <string>

namespace tessera::base {

/// Whether anything has this name, including pipes, folders, dangling links and inaccessible files.
/// Opening such a path then reports the actual error, and the file does not count as missing.
bool is_there(const std::string& path);

}  // namespace tessera::base
