#pragma once

#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// Parses the statements of a chat template. Throws Error(model) naming `where`, the line and the
/// malformed or unsupported part.
Statements template_statements(const std::string& source, const std::string& where);

}  // namespace tessera::jinja
