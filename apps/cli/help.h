#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// The innermost chosen command, or the program.
const CLI::App& chosen_command(const CLI::App& program);

/// Help of a command, made from its options: a line each, at most 80 columns. An option without a
/// description shares the line of the previous option.
std::string help_of(const CLI::App& app);

/// Explains a mistake in the arguments in a single line, with a suggestion.
std::string explain(const CLI::ParseError& error, const CLI::App& program);

}  // namespace tessera::cli
