#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "arguments.h"
#include "commands.h"
#include "field_options.h"
#include "interrupts.h"
#include "progress.h"
#include "tessera/encodings.h"
#include "typed_lines.h"

namespace tessera::cli {
namespace {

constexpr const char* kCommands =
    "/reset      forget what was said\n"
    "/save FILE  write what was said, for 'tessera complete --chat FILE'\n"
    "/stats      tokens of the last turn, and how many of them came from the cache\n"
    "/help       show this\n"
    "Ctrl-C ends an answer, twice or at the prompt the program; Ctrl-D ends it, too.\n"
    "A line that begins with // is sent with one /.\n";

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  CompleteRequest request;
  std::optional<std::string> system;
  bool thinking = false;
};

/// Messages of the chat, in the format of chat templates.
class History {
 public:
  explicit History(const std::optional<std::string>& system) {
    if (system) add("system", *system);
    first_ = messages_.size();
  }
  void add(const char* role, const std::string& content) {
    if (!is_utf8(content)) throw Error(ErrorCode::usage, "a chat: what was said is not UTF-8");
    messages_.push_back("{\"role\": \"" + std::string(role) +
                        "\", \"content\": " + json_quoted(content) + "}");
  }
  void reset() { keep(first_); }
  size_t size() const { return messages_.size(); }
  void keep(size_t messages) { messages_.resize(messages); }
  std::string json() const {
    std::string text;
    for (const std::string& message : messages_) text += (text.empty() ? "" : ",\n ") + message;
    return "[" + text + "]\n";
  }

 private:
  std::vector<std::string> messages_;
  size_t first_ = 0;  // first message after the system message
};

/// Chat loop: reads a line, prints an answer.
class Chat {
 public:
  Chat(const Model& model, const Options& options, const std::stop_token& stop)
      : model_(model),
        request_(options.request),
        stop_(stop),
        history_(options.system),
        thinking_(options.thinking),
        lines_("> "),
        model_name_(options.model->model) {}

  void run() {
    check();
    while (const auto line = lines_.next(stop_)) {
      try {
        if (line->starts_with('/') && !line->starts_with("//"))
          command(*line);
        else if (line->find_first_not_of(" \t\r\n") != std::string::npos)
          answer(line->substr(line->starts_with("//") ? 1 : 0));
      } catch (const Error& e) {
        // A user can retry; a script would not notice a missing turn.
        if (!lines_.on_terminal() || e.code() == ErrorCode::cancelled) throw;
        complain(e.what(), 0);
      }
    }
  }

 private:
  // Before the first turn, checks for a template that accepts the system message.
  void check() {
    History first = history_;
    first.add("user", "");
    (void)model_.tokenize({.chat = template_input(first)}, stop_);
  }

  // Variables of the template.
  std::string template_input(const History& history) const {
    if (!thinking_) return history.json();
    return R"({"enable_thinking": true, "messages": )" + history.json() + "}";
  }

  void command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const size_t begin = line.find_first_not_of(' ', std::min(space, line.size()));
    std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    rest.erase(rest.find_last_not_of(' ') + 1);
    if (name == "/reset" && rest.empty()) {
      history_.reset();
      prefix_.clear();
    } else if (name == "/save" && !rest.empty()) {
      save(rest);
    } else if (name == "/stats" && rest.empty()) {
      std::fprintf(stderr, "%s\n", stats_.c_str());
    } else if (name == "/help" && rest.empty()) {
      std::fputs(kCommands, stderr);
    } else {
      const std::set<std::string> names{"/reset", "/save", "/stats", "/help"};
      const bool is_command = names.contains(name);
      throw Error(ErrorCode::usage,
                  is_command
                      ? "'" + line + "': " + (name == "/save" ? "name a file" : "nothing follows")
                      : "there is no command '" + name + "'; /help lists them");
    }
  }

  // Overwrites a file not saved by this chat only after a confirmation.
  void save(const std::string& path) {
    std::error_code ignored;
    bool replace = saved_.contains(path);
    if (!replace && lines_.on_terminal() && std::filesystem::is_regular_file(path, ignored)) {
      const auto reply = lines_.next(stop_, "'" + path + "' exists. Replace it? [y/N] ");
      replace = reply == "y" || reply == "yes";
      if (!replace) return;
    }
    check_files({model_name_, {}, {{"/save", path, FileKind::chat}}, replace});
    save_text(history_.json(), path);
    saved_.insert(path);
    std::fprintf(stderr, "%zu messages are in '%s'\n", history_.size(), path.c_str());
  }

  void answer(const std::string& text) {
    const size_t before = history_.size();
    history_.add("user", text);
    request_.chat = template_input(history_);
    std::string reply;
    bool whole = true;
    try {
      const Interruptible now;
      const auto show = [&](const CompleteProgress& p) {
        reply += p.text;
        std::fwrite(p.text.data(), 1, p.text.size(), stdout);
        if (!p.text.empty()) flush_results();
      };
      const auto note = [this](const std::string& sentence) {
        if (noted_.insert(sentence).second) print_note(sentence);
      };
      const CompleteResult result = model_.complete(request_, {now.token(), show, note, &prefix_});
      const Completion& turn = result.completions[0];
      stats_ = std::to_string(turn.prompt_ids.size()) + " prompt tokens, " +
               std::to_string(turn.reused) + " of them from the cache; " +
               std::to_string(turn.ids.size()) + " new tokens in " +
               std::to_string(result.forwards) + " passes";
    } catch (const Error& e) {
      if (e.code() != ErrorCode::cancelled || stop_.stop_requested()) {
        history_.keep(before);
        if (!reply.empty()) std::printf("\n");
        throw;
      }
      whole = false;
      std::fputs(lines_.on_terminal() ? " (stopped)" : "", stderr);
    }
    std::printf("\n");
    flush_results();
    if (request_.temperature > 0) ++request_.seed;  // another answer to the same text
    if (!whole && reply.empty())
      history_.keep(before);  // undo the question
    else
      history_.add("assistant", reply);
  }

  const Model& model_;
  CompleteRequest request_;
  const std::stop_token& stop_;
  History history_;
  bool thinking_;  // value of the template's switch
  TypedLines lines_;
  std::string model_name_;
  std::set<std::string> saved_;
  std::set<std::string> noted_;
  PrefixCache prefix_;  // a turn computes only new tokens
  std::string stats_ = "no turn has been answered";
};

void chat(const Options& o, const std::stop_token& stop) {
  const Model model = Model::open(o.model->model, run_options(*o.model), stop, o.model->files);
  Chat(model, o, stop).run();
}

}  // namespace

Command add_chat(CLI::App& program) {
  CLI::App* app = program.add_subcommand("chat", "Chat with a diffusion language model (/help)");
  auto o = std::make_shared<Options>();
  CompleteRequest& q = o->request;
  app->add_option("MODEL", o->model->model, "Folder with a chat template, or tasks-a, -b, -c")
      ->required();
  const char* group = "Common";
  add_text(*app, "--system", o->system, "System message before the chat (default: none)")
      ->group(group);
  app->add_flag("--thinking", o->thinking, "Ask for thoughts, where the template has the switch")
      ->group(group);
  add_fields(*app, q, group);
  add_fields(*app, q, "Sampling", group);
  add_text(*app, "--stop", q.stop, "Text that ends an answer, repeatable")->group(group);
  add_decoding_options(*app, q);
  add_fields(*app, q, kDecoding,
             [](const Field& field) { return field.name == std::string("select"); });
  add_transformer_file(*app, o->model);
  add_model_options(*app, o->model);
  add_memory_budget(*app, o->model, "Memory limit, e.g. 4GB (default: the machine's)");
  return {app, [o](const std::stop_token& stop) { chat(*o, stop); }};
}

}  // namespace tessera::cli
