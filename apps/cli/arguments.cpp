#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

namespace tessera::cli {
namespace {

constexpr const char* kText = "TEXT";  // type name of options with marked values
// CLI11 reads "[a, b]" as a list, "[[aa]]" and "{}" as escapes, and "" as missing. A leading mark
// prevents this.
constexpr char kMark = '\x02';

void for_each_app(CLI::App& app, const std::function<void(CLI::App&)>& f) {
  f(app);
  for (CLI::App* inner : app.get_subcommands({})) for_each_app(*inner, f);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Marks the values of text options, `--name value` or `--name=value`.
std::vector<std::string> marked(const std::set<std::string>& texts, int argc,
                                const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (texts.count(argument.substr(0, equals)) == 0) {
      arguments.push_back(argument);
    } else if (equals != std::string::npos) {
      arguments.push_back(argument.substr(0, equals));
      arguments.push_back(kMark + argument.substr(equals + 1));
    } else {
      arguments.push_back(argument);
      if (i + 1 < argc) arguments.push_back(kMark + std::string(argv[++i]));
    }
  }
  return arguments;
}

}  // namespace

CLI::Option* add_text(CLI::App& app, const std::string& name,
                      const std::function<void(const std::string&)>& take,
                      const std::string& description) {
  const auto read = [take](const CLI::results_t& values) {
    for (const std::string& value : values)
      take(!value.empty() && value.front() == kMark ? value.substr(1) : value);
    return true;
  };
  return app.add_option(name, read, description)
      ->type_name(kText)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* add_text(CLI::App& app, const std::string& name, std::optional<std::string>& value,
                      const std::string& description) {
  return add_text(
             app, name, [&value](const std::string& text) { value = text; }, description)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* add_text(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& description) {
  return add_text(
      app, name, [&values](const std::string& text) { values.push_back(text); }, description);
}

CLI::Validator whole(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && rest == end && value >= least && value <= most) return "";
        return "expected a whole number from " + std::to_string(least) + " to " +
               std::to_string(most) + ", not '" + text + "'";
      },
      "");
}

CLI::Validator within(double least, double most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool whole = !text.empty() && end == text.c_str() + text.size();
        if (whole && value >= least && value <= most) return "";
        return "expected a number from " + number(least) + " to " + number(most) + ", not '" +
               text + "'";
      },
      "");
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](std::string& text) -> std::string {
        if (std::count(words.begin(), words.end(), text) > 0) return "";
        std::string choices;
        for (size_t i = 0; i < words.size(); ++i)
          choices += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
        return "expected " + choices + ", not '" + text + "'";
      },
      "");
}

CLI::Validator seed() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        uint64_t value = 0;
        const bool below = text.starts_with('-');
        const char* const begin = text.data() + (below ? 1 : 0);
        const auto [rest, error] = std::from_chars(begin, text.data() + text.size(), value);
        if (error == std::errc::invalid_argument || (error == std::errc() && !below))
          return "";  // the conversion complains
        return "expected a whole number from 0 to 18446744073709551615, not '" + text + "'";
      },
      "");
}

CLI::Validator positive() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end == text.c_str() || *end != '\0' || value > 0)
          return "";  // the conversion complains
        return "expected a number above 0, not " + text;
      },
      "");
}

void parse(CLI::App& program, int argc, const char* const* argv) {
  std::set<std::string> texts;
  for_each_app(program, [&](CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
      if (option->get_type_name() == kText)
        for (const std::string& name : option->get_lnames()) texts.insert("--" + name);
      if (option->get_items_expected_max() == 1 &&
          option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  });
  std::vector<std::string> arguments = marked(texts, argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // order of CLI11
  program.parse(std::move(arguments));
}

std::vector<std::string> repeated(const CLI::App& program) {
  std::vector<std::string> sentences;
  for (const CLI::App* app = &program; app;) {
    for (const CLI::Option* option : app->get_options())
      if (option->count() > 1 && option->get_type_size() > 0 &&
          option->get_items_expected_max() == 1 &&
          option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast)
        sentences.push_back(option->get_name() + " was given " + std::to_string(option->count()) +
                            " times; the last counts");
    const auto inner = app->get_subcommands();
    app = inner.empty() ? nullptr : inner.front();
  }
  return sentences;
}

}  // namespace tessera::cli
