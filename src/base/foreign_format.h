#pragma once

#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera::base {

/// Bytes from the start of a file that tell a foreign format.
inline constexpr size_t kForeignBytes = 512;

/// Says that a file is no model file at all, by its first bytes: a Git LFS or Xet pointer, an HTML
/// page, a pickle, a GGUF file, an archive, or nothing but zeros. Text for a message, with what to
/// do; "" for anything else.
std::string foreign_format(std::string_view begin);
/// Throws Error(code) naming the path for such a file.
void refuse_foreign(std::string_view begin, const std::string& path,
                    ErrorCode code = ErrorCode::model);

}  // namespace tessera::base
