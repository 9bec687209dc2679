#include <csignal>
#include <cstdio>
#include <exception>
#include <chrono>
#include <new>
#include <stop_token>
#include <thread>

#include "commands.h"

namespace {

std::stop_source& stop_source() {
  static std::stop_source source;
  return source;
}
volatile std::sig_atomic_t interrupted = 0;

// First Ctrl-C: end within a step. Second: at once.
void on_interrupt(int signal) {
  if (interrupted) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  interrupted = 1;
}

int complain(const std::string& message, int status) {
  std::string line = message;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  std::fprintf(stderr, "tessera: error: %s\n", line.c_str());
  return status;
}

int run(int argc, char** argv) {
  using namespace tessera;
  CLI::App program{"Tessera: diffusion transformers on the machine you have"};
  program.set_version_flag("--version", std::string("tessera ") + kVersion);
  program.require_subcommand(1);
  const cli::Command commands[] = {cli::add_generate(program), cli::add_forward(program),
                                   cli::add_inspect(program), cli::add_bench(program)};
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return program.exit(e);
  } catch (const CLI::ParseError& e) {
    const auto chosen = program.get_subcommands();
    return complain(std::string(e.what()) + " (see 'tessera " +
                        (chosen.empty() ? "" : chosen[0]->get_name() + " ") + "--help')",
                    static_cast<int>(ErrorCode::usage));
  }
  for (const cli::Command& command : commands)
    if (command.app->parsed()) command.run(stop_source().get_token());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  stop_source();
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // request_stop is not safe inside a handler: a thread passes the word on.
  std::jthread watcher([](std::stop_token ended) {
    while (!ended.stop_requested()) {
      if (interrupted) stop_source().request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  try {
    return run(argc, argv);
  } catch (const tessera::Error& e) {
    return complain(e.what(), static_cast<int>(e.code()));
  } catch (const std::bad_alloc&) {
    return complain("out of memory: use a smaller size, batch or model", 6);
  } catch (const std::exception& e) {
    return complain(std::string("internal: ") + e.what(), 1);
  }
}
