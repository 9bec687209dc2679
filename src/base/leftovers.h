#pragma once

#include <string>

namespace tessera::base {

/// A unique name beside `target` for a temporary file, later renamed to `target`. The name is
/// short, because the target's name may have the maximal length.
std::string name_beside(const std::string& target);
/// Locks an open file or folder while being written, until all copies of the descriptor are closed.
/// False: another run has removed the file, or is about to.
bool hold(int descriptor);
/// Removes temporary files of this user's killed runs from a folder: those without a lock. On a
/// file system without locks nothing is removed.
void sweep_leftovers(const std::string& folder);

}  // namespace tessera::base
