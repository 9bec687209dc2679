#pragma once

namespace tessera::base {

/// Returns the descriptor, or a copy above the standard streams in its place. If a program was
/// started without standard streams, its messages would otherwise go into a file with their number.
/// -1 stays -1; -1 with errno: the copy failed and the descriptor was closed.
int above_streams(int descriptor);

}  // namespace tessera::base
