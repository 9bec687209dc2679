#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <stop_token>
#include <system_error>

#include "arguments.h"
#include "commands.h"
#include "help.h"
#include "interrupts.h"
#include "plan.h"
#include "server/option_names.h"

namespace {

const char* const kFooter =
    "Try:\n"
    "  tessera generate shapes --class \"red circle\" -o circle.png\n"
    "  tessera inspect shapes\n"
    "Exit status: 0 done, 2 wrong use, 3 bad model or file, 4 plan cannot run,\n"
    "  5 a rank failed, 6 does not fit in memory, 130 cancelled\n";

// An unset shell variable gives an empty value; the user did not ask for the default.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->get_type_name() == "TEXT" || name == "--prompt-ids") continue;  // checked elsewhere
    for (const std::string& value : option->results())
      if (value.empty() && option->get_items_expected_max() > 0)
        throw tessera::Error(tessera::ErrorCode::usage,
                             name + " '': the value is empty; give one, or leave the option out");
  }
  for (const CLI::App* inner : app.get_subcommands()) refuse_empty_values(*inner);
}

// Without standard streams, the first opened files would take their descriptors. The null devices
// fail on use, as a closed stream does.
bool open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) return false;
  }
  return true;
}

int run(int argc, char** argv, const std::stop_token& stop) {
  using namespace tessera;
  CLI::App program{"Tessera: diffusion transformers on the machine you have"};
  program.set_version_flag("--version", std::string("tessera ") + kVersion, "Show the version");
  program.require_subcommand(1);
  program.footer(kFooter);
  const cli::Command commands[] = {
      cli::add_generate(program), cli::add_complete(program), cli::add_chat(program),
      cli::add_tokenize(program), cli::add_forward(program),  cli::add_inspect(program),
      cli::add_plan(program),     cli::add_quantise(program), cli::add_eval(program),
      cli::add_bench(program),    cli::add_serve(program)};
  const auto add_help = [](CLI::App* app) {
    const std::string group = app->get_options().back()->get_group();
    app->set_help_flag("-h,--help", "Show this help")->group(group);
  };
  for (CLI::App* app : program.get_subcommands({})) {
    add_help(app);
    for (CLI::App* inner : app->get_subcommands({})) add_help(inner);
  }
  program.set_help_flag("-h,--help", "Show this help");
  try {
    cli::parse(program, argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::printf("%s", cli::help_of(cli::chosen_command(program)).c_str());
    cli::flush_results();
    return 0;
  } catch (const CLI::CallForVersion& e) {
    std::printf("%s\n", e.what());
    cli::flush_results();
    return 0;
  } catch (const CLI::ParseError& e) {
    return cli::complain(cli::explain(e, program), static_cast<int>(ErrorCode::usage));
  }
  refuse_empty_values(program);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank || std::strcmp(rank, "0") == 0)
    for (const std::string& sentence : cli::repeated(program))
      std::fprintf(stderr, "note: %s\n", sentence.c_str());
  for (const cli::Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (!command.on_processes) cli::refuse_processes(command.app->get_name());
    command.run(stop);
  }
  cli::flush_results();
  return 0;
}

// Given only a size, glibc ignores the size and uses its own, so a buffer is needed.
std::array<char, 1 << 20> kOutput;

}  // namespace

int tessera::cli::complain(const std::string& message, int status) {
  std::string line = server::in_options(message);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = c == '\n' || c == '\r' ? ' ' : '?';
  std::fprintf(stderr, "tessera: error: %s\n", line.c_str());
  return status;
}

void tessera::cli::flush_results() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (errno == EPIPE) throw ReaderLeft{};
  throw Error(ErrorCode::usage, std::string("cannot write to standard output: ") +
                                    (errno ? std::strerror(errno) : "an earlier write failed"));
}

int main(int argc, char** argv) {
  if (!open_missing_streams()) return static_cast<int>(tessera::ErrorCode::usage);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit becomes a write error
  if (!isatty(STDOUT_FILENO))
    std::setvbuf(stdout, kOutput.data(), _IOFBF, kOutput.size());  // flush_results() reports errors
  try {
    const tessera::cli::Interrupts interrupts;
    return run(argc, argv, interrupts.token());
  } catch (const tessera::cli::ReaderLeft&) {
    return 0;  // as with `| head`: the reader has enough
  } catch (const tessera::EchoError& e) {
    // Ends at once, because mpirun kills the other ranks after some have ended.
    std::_Exit(static_cast<int>(e.code()));
  } catch (const tessera::Error& e) {
    return tessera::cli::complain(e.what(), static_cast<int>(e.code()));
  } catch (const std::bad_alloc&) {
    return tessera::cli::complain("out of memory: use a smaller size, batch or model", 6);
  } catch (const std::filesystem::filesystem_error& e) {
    return tessera::cli::complain(std::string("the system refuses a file: ") + e.what(), 2);
  } catch (const std::system_error& e) {
    return tessera::cli::complain(std::string("the system refuses a thread or a file: ") +
                                      e.what() + "; give fewer --threads, or raise its limits",
                                  6);
  } catch (const std::exception& e) {
    return tessera::cli::complain(std::string("internal: ") + e.what(), 1);
  }
}
