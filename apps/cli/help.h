#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// The command that the arguments chose, innermost; the program itself if there is none.
const CLI::App& chosen(const CLI::App& program);

/// The help of a command, made from its options: a line each, at most 80 columns. An option without
/// a description stands on the line of the option before it.
std::string help_of(const CLI::App& app);

/// One line for a mistake in the arguments: what it is, and what was perhaps meant.
std::string explain(const CLI::ParseError& error, const CLI::App& program);

}  // namespace tessera::cli
