#pragma once

#include <string>
#include <string_view>

namespace tessera::base {

/// Whether the text may contain the words of Python's json that are not JSON.
bool has_python_numbers(std::string_view text);
/// Infinity and -Infinity outside strings become the largest finite doubles, NaN becomes null:
/// published scheduler configs hold "lambda_min_clipped": -Infinity.
std::string without_python_numbers(std::string_view text);

}  // namespace tessera::base
