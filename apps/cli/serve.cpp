#include "server/serve.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "interrupts.h"
#include "plan.h"
#include "server/log_lines.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  server::ServeOptions serve;
  std::string keep = "7d", log = "plain", body = "1MiB", image_body = "16MiB", store_limit,
              job_time, prefix_cache = "1GiB";
  double megapixels = 64;
};

// Parses "90", "90s", "15m", "12h", "7d" to seconds.
double seconds_of(const std::string& text, const std::string& option) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  for (const auto& [name, seconds] :
       {std::pair{"", 1.0}, {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}, {"d", 86400.0}})
    if (unit == name && end != text.c_str() && number >= 0 && number * seconds <= 1e9)
      return number * seconds;
  throw Error(ErrorCode::usage,
              option + " " + text + ": expected a time such as 90s, 15m, 12h or 7d");
}

void add_limits(CLI::App& app, const std::shared_ptr<Options>& o) {
  server::ServeOptions& s = o->serve;
  const char* how = "Limits and storage";
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->group(how)->type_name(type);
  };
  option("--queue", s.queue, "N", "Waiting jobs at most (default 256)")->check(whole(1, 100000));
  option("--at-once", s.at_once, "N", "Requests that run at a time (default 2)")
      ->check(whole(1, 64));
  option("--batch", s.batch, "N", "Images or answers of a batch (default 8)")->check(whole(1, 256));
  option("--lora-dir", s.limits.loras, "DIR", "Folder of adapters that requests may name");
  option("--max-body", o->body, "SIZE", "Size of a request (default 1MiB)");
  option("--max-image-body", o->image_body, "SIZE", "The same with images (default 16MiB)");
  option("--max-megapixels", o->megapixels, "N", "Megapixels of a request (default 64)")
      ->check(within(0.001, 1e6));
  option("--store", s.store, "DIR", "Folder for jobs and results (default: temporary)");
  option("--keep", o->keep, "TIME", "Time to keep ended jobs (default 7d)");
  option("--store-limit", o->store_limit, "SIZE",
         "Size of the store; oldest jobs go (default: none)");
  option("--prefix-cache", o->prefix_cache, "SIZE",
         "Memory of kept conversations (default 1GiB; 0: none)");
  app.add_flag("--all-clients", s.all_clients, "Open a store of clients with keys, without keys")
      ->group(how);
  option("--job-time", o->job_time, "TIME", "Longest run of a job (default: no limit)");
  option("--grace", s.grace, "S", "Seconds for running work at the end (default 30)")
      ->check(within(0, 86400));
}

// A note in the form of the server's; the text is a plan and a time, without quotes.
std::string note_of(const std::string& text, bool json) {
  if (!json) return "note: " + text;
  const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
  return "{\"time\":" + std::to_string(time.count()) + ",\"note\":\"" + text + "\"}";
}

void run(Options& o, const std::stop_token& stop, const Processes* processes) {
  server::ServeOptions& s = o.serve;
  o.model->model = s.models.front();
  std::string chosen;
  if (o.model->plan == kAutoPlan) chosen = choose_auto_plan(*o.model, {}, processes, stop);
  s.run = run_options(*o.model, processes);
  s.files = o.model->files;
  if (!s.files.empty() && s.models.size() > 1)
    throw Error(
        ErrorCode::usage,
        "--transformer, --text-encoder and --vae are for one model; serve the others apart");
  s.keep = seconds_of(o.keep, "--keep");
  if (!o.job_time.empty()) s.job_time = seconds_of(o.job_time, "--job-time");
  if (!o.store_limit.empty()) s.store_limit = bytes_of(o.store_limit, "--store-limit");
  s.prefix_cache = o.prefix_cache == "0" ? 0 : bytes_of(o.prefix_cache, "--prefix-cache");
  s.body = bytes_of(o.body, "--max-body");
  s.image_body = bytes_of(o.image_body, "--max-image-body");
  s.limits.pixels = static_cast<int64_t>(o.megapixels * 1e6);
  if (!s.limits.loras.empty() && !std::filesystem::is_directory(s.limits.loras))
    throw Error(ErrorCode::usage, "--lora-dir " + s.limits.loras + ": expected a folder");
  s.json_log = o.log == "json";
  if (processes) end_ranks_gracefully();
  server::LogLines log(STDERR_FILENO);
  if (!chosen.empty()) log.add(note_of(chosen, s.json_log));
  server::serve(s, stop, [&](const std::string& line) { log.add(line); });
}

}  // namespace

Command add_serve(CLI::App& program) {
  CLI::App* app = program.add_subcommand("serve", "Serve models over HTTP, with a web page");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->serve.models, "Folders, ids, or shapes, scenes, tasks-a, -b, -c")
      ->required()
      ->expected(1, 64);
  const char* group = "Address";
  app->add_option("--port", o->serve.port, "Port; 0 takes any free one (default 8080)")
      ->check(whole(0, 65535))
      ->group(group)
      ->type_name("N");
  app->add_option("--host", o->serve.host, "Address; others than 127.0.0.1 (default) need keys")
      ->group(group)
      ->type_name("ADDRESS");
  app->add_option("--api-keys", o->serve.api_keys, "File with a name and a key in each line")
      ->group(group)
      ->type_name("F");
  app->add_option("--log", o->log, "Form of the log: plain (default) or json")
      ->check(one_of({"plain", "json"}))
      ->group(group)
      ->type_name("L");
  add_limits(*app, o);
  add_weight_files(*app, o->model);
  add_model_options(*app, o->model);
  add_memory_budget(*app, o->model, "Memory limit of all models (default: the machine's)");
  return {app,
          [o](const std::stop_token& stop) {
            run_ranks(*o->model, [&](const Processes* processes) { run(*o, stop, processes); });
          },
          true};
}

}  // namespace tessera::cli
