#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera::cli {

/// A subcommand adds its options to the program and returns the action that runs it.
using Action = std::function<void(const std::stop_token&)>;
struct Command {
  CLI::App* app = nullptr;
  Action run;
  bool on_processes = false;  // knows what to do as one of mpirun's processes
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

/// Prints an error as one line on standard error; returns `status`.
int complain(const std::string& message, int status);
/// Hands on what was printed so far. Throws Error(usage) when standard output cannot be written to,
/// ReaderLeft when it is a pipe that nobody reads any more.
void flush_results();
struct ReaderLeft {};

/// What --max-tokens takes at most; models take less.
constexpr int kMostTokens = 1 << 20;
/// How tokens are drawn: temperature, seed and what changes the model's choice.
void add_drawing_options(CLI::App& command, CompleteRequest& request, const char* group);
/// How text is decoded, without the experts' selection; `request` outlives the parsing.
void add_decoding_options(CLI::App& command, CompleteRequest& request);
/// The passes that follow the selection rule.
void add_ruled_passes(CLI::App& command, CompleteRequest& request, const char* group);
/// "eval speed", "eval tasks" and "eval experts".
Command add_eval_speed(CLI::App& eval);
Command add_eval_tasks(CLI::App& eval);
Command add_eval_experts(CLI::App& eval);
/// The examples that both take; `options` outlives the parsing. `limit` describes --limit.
struct ExampleOptions {
  TaskSource& data;
  int64_t& max_tokens;
  int& limit;
};
void add_example_options(CLI::App& eval, const char* group, const ExampleOptions& options,
                         const char* limit);
/// Reads standard input where --data is "-".
void read_examples(TaskSource& data, const std::stop_token& stop);

/// Options that every command with a model shares.
struct ModelOptions {
  std::string model, plan, transport = "auto", device = "cpu";
  Precision dtype = Precision::bf16;
  std::string quantise_rules;
  int threads = 0;
  int ranks = 0;  // 0: as many as the plan needs
  double comm_timeout = 60;
  std::string memory_budget;  // "": nearly all
  bool map_weights = false;
  WeightFiles files;
};
/// Groups of options that several commands have.
inline constexpr const char* kExecution = "Execution";
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
/// An option whose words stand for choices.
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
/// Adds --lora and --merge-lora to a request that takes adapters.
template <class Request>
void add_loras(CLI::App& app, Request& request) {
  const char* group = "Adapters";
  add_text(
      app, "--lora",
      [&request](const std::string& text) { request.loras.push_back(parse_lora(text)); },
      "Repeatable: FILE, or FILE:STRENGTH")
      ->group(group)
      ->type_name("F[:S]");
  app.add_flag("--merge-lora", request.merge_lora, "Into the weights, not beside their products")
      ->group(group);
}
/// Throws Error(usage) or Error(plan) for values that this version cannot run.
RunOptions run_options(const ModelOptions& options, const Processes* processes = nullptr);
/// Runs `body` as a rank of mpirun's processes where they are the transport, else at once with
/// null.
void run_ranks(const ModelOptions& options, const std::function<void(const Processes*)>& body);
/// Under mpirun with more than one process, throws on each of them, and one tells why: every
/// process would do the same work.
void refuse_processes(const std::string& command);

/// Reads "auto" (which changes nothing), "on", "off", or a tile's side in pixels. Throws
/// Error(usage).
void set_tiling(const std::string& text, VaeTiling& tiling, int64_t& pixels);
/// "4GB", "512MiB" or a count of bytes -> bytes. Throws Error(usage) naming `option`.
int64_t bytes_of(const std::string& text, const std::string& option);

}  // namespace tessera::cli
