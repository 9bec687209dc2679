#pragma once

#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera::base {

/// Bytes at the start of a file that identify a foreign format.
inline constexpr size_t kForeignBytes = 512;

/// Describes a file that is no model file, by its first bytes: a Git LFS or Xet pointer, an HTML
/// page, a pickle, a GGUF file, an archive, or only zeros. Returns text for a message, with a
/// remedy; "" for anything else.
std::string foreign_format(std::string_view begin);
/// Throws Error(code) naming the path for such a file.
void refuse_foreign(std::string_view begin, const std::string& path,
                    ErrorCode code = ErrorCode::model);

}  // namespace tessera::base
