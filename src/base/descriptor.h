#pragma once

namespace tessera::base {

/// The descriptor, or a copy above those of the standard streams in its place: where a program was
/// started without these, its messages would go into a file that has their number. -1 stays -1;
/// with -1 and errno the descriptor was closed.
int above_streams(int descriptor);

}  // namespace tessera::base
