#pragma once

#include <string>

namespace tessera::base {

/// Whether anything has this name. A pipe, a folder, a link that leads nowhere or what may not be
/// looked at does: who opens it hears what is wrong with it, and takes none of them for missing.
bool is_there(const std::string& path);

}  // namespace tessera::base
