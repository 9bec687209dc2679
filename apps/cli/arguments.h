#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// An option whose value is text, taken as it was typed: brackets, nothing at all. Values that
/// begin with '-' are given as --name=-value. Each use is handed to `take`.
CLI::Option* add_text(CLI::App& app, const std::string& name,
                      const std::function<void(const std::string&)>& take,
                      const std::string& description = "");
CLI::Option* add_text(CLI::App& app, const std::string& name, std::optional<std::string>& value,
                      const std::string& description = "");
CLI::Option* add_text(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& description = "");

/// Checks of values, in words that do not depend on CLI11's version.
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator within(double least, double most);
CLI::Validator one_of(const std::vector<std::string>& words);
/// Refuses whole numbers that are no seed: those below zero wrapped round, too large ones were cut.
CLI::Validator seed();
/// Accepts numbers above zero.
CLI::Validator positive();

/// Parses the arguments; of an option that was given more than once the last counts. Throws
/// CLI::ParseError.
void parse(CLI::App& program, int argc, const char* const* argv);
/// "--seed was given 2 times; the last counts": a sentence for each such option.
std::vector<std::string> repeated(const CLI::App& program);

}  // namespace tessera::cli
