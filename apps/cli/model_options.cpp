#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "arguments.h"
#include "commands.h"

namespace tessera::cli {

void add_model(CLI::App& command, const std::shared_ptr<ModelOptions>& o) {
  command.add_option("MODEL", o->model, "Folder, hub id, or shapes, scenes, tasks-a, -b, -c")
      ->required();
}

void add_model_options(CLI::App& command, const std::shared_ptr<ModelOptions>& o) {
  const char* group = kExecution;
  add_choice(command, "--dtype", o->dtype,
             std::string("Precision: f32, bf16, int8 or int4 (default ") + word_of(o->dtype) + ")")
      ->check(one_of({"f32", "bf16", "int8", "int4"}))
      ->group(group)
      ->type_name("T");
  const auto add_rules = [o](const std::string& rules) {
    o->quantise_rules += (o->quantise_rules.empty() ? "" : ",") + rules;
  };
  command
      .add_option_function<std::string>("--quantise-rules", add_rules,
                                        "Forms of products, e.g. attn=int8,mlp=int4")
      ->group(group)
      ->type_name("R");
  command
      .add_flag_callback(
          "--exact-quants", [add_rules] { add_rules("blocks=bf16"); },
          "Compute with a GGUF's own numbers in bf16")
      ->group(group);
  command.add_option("--device", o->device, "Device: cpu (default) or cuda[:N]")
      ->group(group)
      ->type_name("D");
  command.add_option("--threads", o->threads, "Threads of this process (default: all cores)")
      ->check(whole(1, 4096))
      ->group(group)
      ->type_name("N");
  command.add_flag("--map-weights", o->map_weights, "Use quantised weights in their file, unread")
      ->group(group);
  command.add_option("--plan", o->plan, "Parallel plan, name=value,... (default: one rank)")
      ->group(group)
      ->type_name("P");
  command.add_option("--ranks", o->ranks, "Ranks (default: as many as the plan needs)")
      ->check(whole(1, 4096))
      ->group(group)
      ->type_name("N");
  command
      .add_option("--comm-timeout", o->comm_timeout,
                  "Seconds without progress of any rank (default 60)")
      ->check(within(0.01, 86400.0))
      ->group(group)
      ->type_name("S");
  command.add_option("--transport", o->transport, "auto (default), threads, mpi or nccl")
      ->group(group)
      ->type_name("T");
}

void add_transformer_file(CLI::App& command, const std::shared_ptr<ModelOptions>& o) {
  command
      .add_option("--transformer", o->files.transformer, "Its weights: a GGUF or safetensors file")
      ->group(kExecution)
      ->type_name("F");
}

void add_weight_files(CLI::App& command, const std::shared_ptr<ModelOptions>& o) {
  const char* group = kExecution;
  add_transformer_file(command, o);
  add_text(command, "--text-encoder", o->files.text_encoders, "A text encoder's, or NAME=FILE")
      ->group(group)
      ->type_name("F");
  command.add_option("--vae", o->files.vae, "The VAE's, or a TAESD: folder or file")
      ->group(group)
      ->type_name("F");
  command.add_option("--preview-vae", o->files.preview_vae, "The same for previews alone")
      ->group(group)
      ->type_name("F");
}

void add_memory_budget(CLI::App& command, const std::shared_ptr<ModelOptions>& o, const char* text,
                       const char* group) {
  command.add_option("--memory-budget", o->memory_budget, text)->group(group)->type_name("SIZE");
}

void set_tiling(const std::string& text, VaeTiling& tiling, int64_t& pixels) {
  if (text == "auto") return;
  tiling = text == "off" ? VaeTiling::off : VaeTiling::on;
  if (text == "on" || text == "off") return;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, pixels);
  if (error != std::errc() || rest != end || pixels <= 0)
    throw Error(ErrorCode::usage, "--vae-tiling " + text +
                                      ": expected auto, on, off, or a tile's side of 64 to 16384 "
                                      "pixels");
}

int64_t bytes_of(const std::string& text, const std::string& option) {
  static const std::pair<const char*, double> units[] = {
      {"", 1},          {"b", 1},
      {"k", 1e3},       {"kb", 1e3},
      {"m", 1e6},       {"mb", 1e6},
      {"g", 1e9},       {"gb", 1e9},
      {"t", 1e12},      {"tb", 1e12},
      {"kib", 1024},    {"mib", 1048576},
      {"gib", 1 << 30}, {"tib", 1099511627776.0}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, bytes] : units)
    if (unit == name && end != text.c_str() && number * bytes >= 1 && number * bytes <= 1e17)
      return static_cast<int64_t>(number * bytes);
  throw Error(ErrorCode::usage, option + " " + text + ": expected a size such as 4GB or 512MiB");
}

namespace {

// A stopped process can end neither itself nor mpirun, so the kernel must end the process.
void end_within(std::chrono::milliseconds limit) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  const itimerspec when{{}, {limit.count() / 1000 + 1, limit.count() % 1000 * 1000000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &when, nullptr);
}

// `last`: the process ends after this run.
void run_as_rank(const ModelOptions& o, bool last,
                 const std::function<void(const Processes*)>& body) {
  const bool between_gpus = o.transport == "nccl";
  if (o.transport != "auto" && o.transport != "threads" && o.transport != "mpi" && !between_gpus)
    throw Error(ErrorCode::usage,
                "--transport " + o.transport +
                    ": expected auto (mpi under mpirun, with nccl where it computes on GPUs; else "
                    "threads), 'threads', 'mpi' or 'nccl'");
  if (between_gpus && parse_device(o.device).kind == DeviceKind::cpu)
    throw Error(ErrorCode::usage, "--transport nccl: it is for GPUs; add --device cuda");
  if (o.transport == "threads" || !started_by_mpirun()) {
    if (o.transport == "mpi" || between_gpus)
      throw Error(ErrorCode::usage,
                  "--transport " + o.transport + ": start the program with mpirun -np N");
    return body(nullptr);
  }
  ProcessOptions options;
  options.comm_timeout = std::chrono::milliseconds(static_cast<int64_t>(o.comm_timeout * 1000));
  options.report = [](const Error& error) { complain(error.what(), 0); };
  options.give_up = [](const Error& error) { std::_Exit(static_cast<int>(error.code())); };
  if (last) options.ending = end_within;
  run_processes(options, [&](const Processes& processes) { body(&processes); });
}

}  // namespace

void run_ranks(const ModelOptions& o, const std::function<void(const Processes*)>& body) {
  run_as_rank(o, true, body);
}

void refuse_processes(const std::string& command) {
  if (!started_by_mpirun()) return;
  ModelOptions usual;
  run_as_rank(usual, false, [&](const Processes* processes) {
    if (processes->ranks() > 1)
      throw Error(ErrorCode::usage,
                  "'" + command + "' does not spread over processes, and mpirun started " +
                      std::to_string(processes->ranks()) +
                      ": start it without mpirun; --ranks N runs ranks as threads");
  });
}

RunOptions run_options(const ModelOptions& o, const Processes* processes) {
  RunOptions run;
  run.device = parse_device(o.device);
  run.precision = o.dtype;
  run.quantise_rules = o.quantise_rules;
  run.threads = o.threads;
  run.plan = parse_plan(o.plan);
  run.comm_timeout = std::chrono::milliseconds(static_cast<int64_t>(o.comm_timeout * 1000));
  run.processes = processes;
  run.map_weights = o.map_weights;
  if (!o.memory_budget.empty()) run.memory_budget = bytes_of(o.memory_budget, "--memory-budget");
  if (processes && o.ranks != 0 && o.ranks != processes->ranks())
    throw Error(ErrorCode::usage, "--ranks " + std::to_string(o.ranks) + ": mpirun started " +
                                      std::to_string(processes->ranks()) +
                                      " processes; leave it out");
  const int ranks = processes ? processes->ranks() : o.ranks;
  const auto errors = problems(run.plan, ranks == 0 ? run.plan.ranks() : ranks);
  if (!errors.empty()) {
    std::string sentences;
    for (const auto& sentence : errors) sentences += (sentences.empty() ? "" : "; ") + sentence;
    throw Error(ErrorCode::plan, "the plan cannot run: " + sentences);
  }
  return run;
}

}  // namespace tessera::cli
