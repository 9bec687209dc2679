#pragma once

#include <stop_token>
#include <string>
#include <vector>

namespace tessera::cli {

/// Reads a file, or standard input for "-". Throws Error(usage) naming `option` for a file that is
/// unreadable, not regular, or larger than 16 MB; Error(cancelled) after a stop request.
std::string read_input(const std::string& path, const std::string& option,
                       const std::stop_token& stop);
/// Text of an option: the typed text, or for "-" standard input without the last newline.
std::string read_text(const std::string& typed, const std::string& option,
                      const std::stop_token& stop);
/// Lines of a file, or of standard input for "-"; empty lines at the end are ignored. Throws as
/// read_input does, for an input without lines, and for an empty line before another, naming the
/// line number.
std::vector<std::string> read_lines(const std::string& path, const std::string& option,
                                    const std::stop_token& stop);

}  // namespace tessera::cli
