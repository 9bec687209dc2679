#pragma once

#include <string>

namespace tessera::base {

/// A name of its own beside `target`, for what is to be renamed to it: short, for the target's may
/// be as long as names can be.
std::string name_beside(const std::string& target);
/// Marks an open file or folder as one that is being written, for as long as a copy of the
/// descriptor is open. False: another run has removed it, or is about to.
bool hold(int descriptor);
/// Removes what killed runs of this user left in a folder under such names: nobody holds it. A file
/// system without locks keeps all.
void sweep_leftovers(const std::string& folder);

}  // namespace tessera::base
