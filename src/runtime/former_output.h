#pragma once

#include <map>
#include <string>

#include "tessera/run_files.h"

namespace tessera::runtime {

/// Whether a regular file is an output of this kind that Tessera wrote: images and videos name it
/// in their metadata, tensors in theirs, reports in a line. What cannot be read is none, and of
/// chats and folders none is known.
bool is_former_output(const std::string& path, FileKind kind);

/// The metadata of files of tensors that is_former_output looks for.
std::map<std::string, std::string> tensors_metadata(FileKind kind);

}  // namespace tessera::runtime
