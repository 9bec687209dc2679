#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// Adds an option with a text value, taken literally: brackets and empty text included. Values
/// beginning with '-' are given as --name=-value. `take` receives each use.
CLI::Option* add_text(CLI::App& app, const std::string& name,
                      const std::function<void(const std::string&)>& take,
                      const std::string& description = "");
CLI::Option* add_text(CLI::App& app, const std::string& name, std::optional<std::string>& value,
                      const std::string& description = "");
CLI::Option* add_text(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& description = "");

/// Checks of values; the messages do not depend on CLI11's version.
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator within(double least, double most);
CLI::Validator one_of(const std::vector<std::string>& words);
/// Refuses integers outside the range of seeds: CLI11 wraps negative numbers and cuts large ones.
CLI::Validator seed();
/// Accepts positive numbers.
CLI::Validator positive();

/// Parses the arguments; for a repeated option the last value counts. Throws CLI::ParseError.
void parse(CLI::App& program, int argc, const char* const* argv);
/// "--seed was given 2 times; the last counts": a sentence for each repeated option.
std::vector<std::string> repeated(const CLI::App& program);

}  // namespace tessera::cli
