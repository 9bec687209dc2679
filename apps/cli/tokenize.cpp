#include <algorithm>
#include <cstdio>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "inputs.h"

namespace tessera::cli {
namespace {

struct Options {
  ModelOptions model;
  TokenizeRequest request;
  std::string chat, prompt_file;
  bool json = false;
};

// Quotes a piece on a single line, escaping all control characters.
std::string quoted(const std::string& piece) {
  std::string line = "\"";
  for (char c : piece)
    if (c == '\n')
      line += "\\n";
    else if (c == '\t')
      line += "\\t";
    else if (c == '"' || c == '\\')
      line += std::string("\\") + c;
    else
      line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return line + "\"";
}

void print(const std::vector<Tokenized>& texts, const std::stop_token& stop) {
  const auto check_stop = [&] {
    if (stop.stop_requested()) throw Error(ErrorCode::cancelled, "stopped before all was shown");
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    check_stop();
    const Tokenized& tokenized = texts[i];
    std::printf("%s%s: %zu tokens", i == 0 ? "" : "\n", tokenized.tokenizer.c_str(),
                tokenized.ids.size());
    if (tokenized.length > 0) std::printf(", padded to %ld", static_cast<long>(tokenized.length));
    std::printf("\n");
    for (size_t t = 0; t < tokenized.ids.size(); ++t) {
      check_stop();
      std::printf("%8d  %s\n", tokenized.ids[t], quoted(tokenized.pieces[t]).c_str());
    }
  }
}

void tokenize(Options& o, const std::stop_token& stop) {
  TokenizeRequest& q = o.request;
  for (std::string& prompt : q.prompts) prompt = read_text(prompt, "--prompt", stop);
  if (!o.prompt_file.empty())
    for (const std::string& line : read_lines(o.prompt_file, "--prompt-file", stop))
      q.prompts.push_back(line);
  if (!o.chat.empty()) q.chat = read_input(o.chat, "--chat", stop);
  const auto texts = Model::open(o.model.model, run_options(o.model), stop).tokenize(q, stop);
  if (o.json)
    std::printf("%s\n", to_json(texts, stop).c_str());
  else
    print(texts, stop);
}

}  // namespace

Command add_tokenize(CLI::App& program) {
  CLI::App* app = program.add_subcommand("tokenize", "Show the tokens of a text: ids and pieces");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->model.model, "Folder, hub id, or shipped: scenes, tasks-a, -b, -c")
      ->required();
  const char* group = kFiles;
  add_text(*app, "--prompt", o->request.prompts, "Text, repeatable; '-' reads standard input")
      ->group(group);
  app->add_option("--prompt-file", o->prompt_file, "File with a text in each line; '-': stdin")
      ->group(group)
      ->type_name("F");
  app->add_option("--chat", o->chat, "Chat as JSON, a file or '-'")->group(group)->type_name("F");
  app->add_flag("--raw", o->request.raw, "Use texts without the chat template")->group(group);
  app->add_option("--tokenizer", o->request.tokenizer, "One tokenizer of a pipeline (default: all)")
      ->group(group)
      ->type_name("NAME");
  app->add_flag("--json", o->json, "Print the result as JSON")->group(group);
  return {app, [o](const std::stop_token& stop) { tokenize(*o, stop); }};
}

}  // namespace tessera::cli
