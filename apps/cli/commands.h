#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "arguments.h"
#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera::cli {

/// A subcommand adds its options to the program and returns the action that runs it.
using Action = std::function<void(const std::stop_token&)>;
struct Command {
  CLI::App* app = nullptr;
  Action run;
  bool on_processes = false;  // supports running as a process of mpirun
};

Command add_generate(CLI::App& program);
Command add_complete(CLI::App& program);
Command add_chat(CLI::App& program);
Command add_tokenize(CLI::App& program);
Command add_forward(CLI::App& program);
Command add_inspect(CLI::App& program);
Command add_quantise(CLI::App& program);
Command add_eval(CLI::App& program);
Command add_bench(CLI::App& program);
Command add_serve(CLI::App& program);

/// Prints an error as a line on standard error; returns `status`.
int complain(const std::string& message, int status);
/// Flushes the output so far. Throws Error(usage) if standard output is not writable, ReaderLeft if
/// the pipe's reader has gone.
void flush_results();
struct ReaderLeft {};

/// Upper bound of --max-tokens; models may have a lower limit.
constexpr int kMostTokens = 1 << 20;
/// Decoding options of text, without the selection of experts; `request` outlives the parsing.
void add_decoding_options(CLI::App& command, CompleteRequest& request);
/// Adds "eval speed", "eval tasks" and "eval experts".
Command add_eval_speed(CLI::App& eval);
Command add_eval_tasks(CLI::App& eval);
Command add_eval_experts(CLI::App& eval);
/// Examples for both commands; `options` outlives the parsing. `limit` describes --limit.
struct ExampleOptions {
  TaskSource& data;
  int64_t& max_tokens;
  int& limit;
};
void add_example_options(CLI::App& eval, const char* group, const ExampleOptions& options,
                         const char* limit);
/// Reads standard input if --data is "-".
void read_examples(TaskSource& data, const std::stop_token& stop);

/// Options shared by all commands with a model.
struct ModelOptions {
  std::string model, plan, transport = "auto", device = "cpu";
  Precision dtype = Precision::bf16;
  std::string quantise_rules;
  int threads = 0;
  int ranks = 0;  // 0: as many as the plan needs
  double comm_timeout = 60;
  std::string memory_budget;  // "": nearly all memory
  bool map_weights = false;
  WeightFiles files;
};
/// Option groups shared by several commands.
inline constexpr const char* kExecution = "Execution";
inline constexpr const char* kAdapters = "Adapters";
inline constexpr const char* kDecoding = "Decoding";
inline constexpr const char* kFiles = "Input and output";
void add_model(CLI::App& command, const std::shared_ptr<ModelOptions>& options);
void add_model_options(CLI::App& command, const std::shared_ptr<ModelOptions>& options);
/// --transformer, of a language model too.
void add_transformer_file(CLI::App& command, const std::shared_ptr<ModelOptions>& options);
/// --transformer, --text-encoder, --vae.
void add_weight_files(CLI::App& command, const std::shared_ptr<ModelOptions>& options);
void add_memory_budget(CLI::App& command, const std::shared_ptr<ModelOptions>& options,
                       const char* text, const char* group = kExecution);
/// Adds an option with a fixed set of words.
template <class Choice>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Choice& choice,
                        const std::string& description = "") {
  return app.add_option_function<std::string>(
      name,
      [&choice, name](const std::string& word) {
        if (!word.empty()) choice = choice_of<Choice>(word, name);  // empty: refused after parsing
      },
      description);
}
/// The same for a choice that may stay open.
template <class Choice>
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::optional<Choice>& choice,
                        const std::string& description = "") {
  return app.add_option_function<std::string>(
      name, [&choice, name](const std::string& word) { choice = choice_of<Choice>(word, name); },
      description);
}
/// Adds --lora to a request that takes adapters.
inline void add_loras(CLI::App& app, std::vector<Lora>& loras) {
  add_text(
      app, "--lora", [&loras](const std::string& text) { loras.push_back(parse_lora(text)); },
      "Repeatable: FILE, or FILE:STRENGTH")
      ->group(kAdapters)
      ->type_name("F");
}
/// Throws Error(usage) or Error(plan) for unsupported values.
RunOptions run_options(const ModelOptions& options, const Processes* processes = nullptr);
/// Runs `body` as a rank of mpirun if processes are the transport; otherwise calls `body` at once
/// with null.
void run_ranks(const ModelOptions& options, const std::function<void(const Processes*)>& body);
/// Throws on every process if mpirun started several, and a single process prints why: each would
/// repeat the same work.
void refuse_processes(const std::string& command);

/// Parses "auto" (no change), "on", "off", or the side of a tile in pixels. Throws Error(usage).
void set_tiling(const std::string& text, VaeTiling& tiling, int64_t& pixels);
/// Parses "4GB", "512MiB" or a number of bytes. Throws Error(usage) naming `option`.
int64_t bytes_of(const std::string& text, const std::string& option);

}  // namespace tessera::cli
