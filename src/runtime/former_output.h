#pragma once

#include <map>
#include <string>

#include "tessera/run_files.h"

namespace tessera::runtime {

/// Whether a regular file is an output of this kind, written by Tessera. Images, videos and tensors
/// name Tessera in their metadata, reports in a line. False for unreadable files, and always for
/// chats and folders.
bool is_former_output(const std::string& path, FileKind kind);

/// The metadata of tensor files for is_former_output().
std::map<std::string, std::string> tensors_metadata(FileKind kind);

}  // namespace tessera::runtime
