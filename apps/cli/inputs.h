#pragma once

#include <stop_token>
#include <string>
#include <vector>

namespace tessera::cli {

/// All of a file, or of standard input for "-". Throws Error(usage) naming `option` for what cannot
/// be read, is no regular file, or has more than 16 MB; Error(cancelled) after a stop request.
std::string read_input(const std::string& path, const std::string& option,
                       const std::stop_token& stop);
/// The text of an option: what was typed, or for "-" all of standard input without its last
/// newline.
std::string read_text(const std::string& typed, const std::string& option,
                      const std::stop_token& stop);
/// Lines of a file, or of standard input for "-"; empty ones at its end are none. Throws as
/// read_input, when there is no line, and for an empty one before another, by its number.
std::vector<std::string> read_lines(const std::string& path, const std::string& option,
                                    const std::stop_token& stop);

}  // namespace tessera::cli
