#pragma once

#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// The statements of a chat template. Throws Error(model) naming `where`, the line and what is
/// malformed or not supported.
Statements template_statements(const std::string& source, const std::string& where);

}  // namespace tessera::jinja
