#include "help.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace tessera::cli {
namespace {

constexpr size_t kColumn = 27;  // first column of descriptions

// Spells an option, "-o,--output OUT".
std::string spelled(const CLI::Option& option) {
  std::string names;
  for (const auto& name : option.get_snames()) names += "-" + name + ",";
  for (const auto& name : option.get_lnames()) names += "--" + name + ",";
  if (names.empty()) return option.get_name();
  names.pop_back();
  if (option.get_type_size() == 0) return names;
  const std::string type = option.get_type_name();  // limits follow after ':'
  return type.empty() ? names : names + " " + type.substr(0, type.find(':'));
}

std::string row(const std::string& left, const std::string& right) {
  std::string line = "  " + left;
  line.append(line.size() + 1 < kColumn ? kColumn - line.size() : 2, ' ');
  return line + right + "\n";
}

std::string rows_of(const std::vector<const CLI::Option*>& options) {
  std::string text;
  for (size_t i = 0; i < options.size();) {
    std::string left = spelled(*options[i]);
    const std::string& right = options[i]->get_description();
    for (++i; i < options.size() && options[i]->get_description().empty(); ++i)
      left += " " + spelled(*options[i]);
    text += row(left, right);
  }
  return text;
}

size_t changes(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

// "; did you mean '--steps'?" if a known word is similar.
std::string suggestion(const std::string& input, const std::vector<std::string>& words) {
  std::string best;
  size_t least = input.size() / 3 + 1;
  for (const std::string& word : words)
    if (const size_t n = changes(input, word); n <= least) least = n, best = word;
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

// Full name of a command: "eval tasks".
std::string path_of(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "";
  const std::string before = path_of(*app.get_parent());
  return (before.empty() ? "" : before + " ") + app.get_name();
}

// Explains an unexpected argument `input`, after a command or in place of a command.
std::string explain_extra(const std::string& input, const CLI::App& program) {
  const CLI::App& app = chosen_command(program);
  std::vector<std::string> words;
  if (&app == &program) {
    for (const CLI::App* command : program.get_subcommands({}))
      words.push_back(command->get_name());
    if (input.starts_with('-')) {
      const std::string hint = suggestion(input, {"--help", "--version"});
      return hint.empty() ? "option '" + input + "' stands before the command"
                          : "unknown option '" + input + "'" + hint;
    }
    return "unknown command '" + input + "'" + suggestion(input, words);
  }
  for (const CLI::Option* option : app.get_options())
    for (const auto& name : option->get_lnames()) words.push_back("--" + name);
  const std::string name = input.substr(0, input.find('='));
  if (input.starts_with('-')) return "unknown option '" + name + "'" + suggestion(name, words);
  if (!app.get_subcommands({}).empty()) {
    std::vector<std::string> names;
    for (const CLI::App* inner : app.get_subcommands({})) names.push_back(inner->get_name());
    std::string list;
    for (const std::string& known_one : names) list += (list.empty() ? "" : ", ") + known_one;
    const std::string hint = suggestion(input, names);
    return "unknown command '" + path_of(app) + " " + input + "'" +
           (hint.empty() ? "; there are " + list : hint);
  }
  const bool takes_text = std::count(words.begin(), words.end(), "--prompt") > 0;
  return "unexpected argument '" + input + "'; " +
         (takes_text ? "a prompt is given as --prompt \"...\", with quotes around its spaces"
                     : "put quotes around a value with spaces");
}

// The first unexpected option, else the first argument; "" if there is none.
std::string left_over(const CLI::ParseError& error, const CLI::App& program) {
  std::vector<std::string> arguments = program.remaining(true);
  if (arguments.empty() &&
      dynamic_cast<const CLI::ExtrasError*>(&error)) {  // only the message has the names
    const std::string text = error.what();
    std::istringstream words(text.substr(std::min(text.find(": "), text.size() - 1) + 1));
    for (std::string word; words >> word;) arguments.push_back(word);
  }
  for (const std::string& text : arguments)
    if (text.starts_with('-')) return text;
  return arguments.empty() ? "" : arguments.front();
}

}  // namespace

const CLI::App& chosen_command(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands()[0];
  return *app;
}

std::string help_of(const CLI::App& app) {
  const bool top = app.get_parent() == nullptr;
  std::string usage = top ? "tessera" : "tessera " + path_of(app);
  std::vector<std::string> groups;
  std::vector<const CLI::Option*> positionals;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      positionals.push_back(option);
      usage += " " + option->get_name();
    } else if (std::count(groups.begin(), groups.end(), option->get_group()) == 0) {
      groups.push_back(option->get_group());
    }
  }
  for (const CLI::Option* option : app.get_options())
    if (!option->get_positional() && option->get_required()) usage += " " + spelled(*option);
  std::string text =
      app.get_description() + "\nUsage: " + usage + (top ? " COMMAND ...\n" : " [OPTION ...]\n");
  text += rows_of(positionals);
  if (!app.get_subcommands({}).empty()) text += "Commands:\n";
  for (const CLI::App* command : app.get_subcommands({}))
    text += row(command->get_name(), command->get_description());
  std::stable_partition(groups.begin(), groups.end(), [](const auto& g) { return g != "Options"; });
  for (const std::string& group : groups) {
    std::vector<const CLI::Option*> members;
    for (const CLI::Option* option : app.get_options())
      if (!option->get_positional() && option->get_group() == group) members.push_back(option);
    text += group + ":\n" + rows_of(members);
  }
  return top ? text + app.get_footer() : text;
}

std::string explain(const CLI::ParseError& error, const CLI::App& program) {
  const bool none = program.get_subcommands().empty();
  const std::string command = none ? "" : path_of(chosen_command(program)) + " ";
  std::string message = error.what();
  const std::string convert = "Could not convert: ";
  const std::string extra = left_over(error, program);
  const std::vector<std::string> before = program.remaining(false);
  if (!none && !before.empty() && before.front().starts_with('-')) {
    message = "option '" + before.front() + "' stands before the command";
  } else if (!extra.empty() && (none || dynamic_cast<const CLI::ExtrasError*>(&error))) {
    message = explain_extra(extra, program);
  } else if (error.get_name() == "ConversionError" && message.starts_with(convert)) {
    message = message.substr(convert.size());
    if (const size_t at = message.find(" = "); at != std::string::npos) message.replace(at, 3, " ");
    message += ": this is no number that the option takes";
  } else if (error.get_name() == "ArgumentMismatch") {
    message = message.substr(0, message.find(':')) + " needs a value";
  } else if (none) {
    message =
        "name a command: generate, complete, chat, tokenize, forward, inspect, plan, quantise, "
        "eval, bench or serve";
  }
  return message + " (see 'tessera " + command + "--help')";
}

}  // namespace tessera::cli
