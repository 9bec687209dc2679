#include "interrupts.h"

#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

sem_t word;                                                   // wakes the watching thread
volatile std::sig_atomic_t interrupted = 0;                   // interrupts of the program
volatile std::sig_atomic_t inner = 0, inner_interrupted = 0;  // the current Interruptible, if any
volatile std::sig_atomic_t first_rank = 0;                    // rank 0 of mpirun

struct Sources {
  std::stop_source program;
  std::mutex mutex;
  std::stop_source inner{std::nostopstate};
  std::jthread watcher;
};
Sources& sources() {
  static Sources instance;
  return instance;
}

// The first signal asks for an end within a step; the second ends the process at once.
void on_interrupt(int signal) {
  if (signal == SIGINT && inner && !inner_interrupted) {
    inner_interrupted = 1;
    sem_post(&word);
    return;
  }
  if (interrupted) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  interrupted = 1;
  sem_post(&word);
}

// request_stop is not safe inside a signal handler, so a thread calls request_stop.
void watch(const std::stop_token& ended) {
  const std::stop_callback at_the_end(ended, [] { sem_post(&word); });
  while (!ended.stop_requested()) {
    while (sem_wait(&word) != 0 && errno == EINTR) {
    }
    if (interrupted) sources().program.request_stop();
    const std::lock_guard lock(sources().mutex);
    if (interrupted || inner_interrupted) sources().inner.request_stop();
  }
}

// mpirun ends the run after a rank was lost.
void obey_mpirun() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  first_rank = rank != nullptr && std::strcmp(rank, "0") == 0;
  std::signal(SIGTERM, [](int) {
    constexpr char kLine[] = "tessera: error: mpirun ended this run (SIGTERM); it says why\n";
    if (first_rank && write(STDERR_FILENO, kLine, sizeof kLine - 1) < 0) first_rank = 0;
    _exit(static_cast<int>(ErrorCode::rank));
  });
}

}  // namespace

Interrupts::Interrupts() {
  sources();
  sem_init(&word, 0, 0);
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) obey_mpirun();
  struct sigaction before {};  // keep a signal ignored by nohup
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  sources().watcher = std::jthread(watch);
}

Interrupts::~Interrupts() { sources().watcher = {}; }

std::stop_token Interrupts::token() const { return sources().program.get_token(); }

void end_ranks_gracefully() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGTERM, &action, nullptr);
}

Interruptible::Interruptible() {
  const std::lock_guard lock(sources().mutex);
  sources().inner = std::stop_source();
  token_ = sources().inner.get_token();
  inner_interrupted = 0;
  inner = 1;
  if (interrupted) sources().inner.request_stop();
}

Interruptible::~Interruptible() {
  inner = 0;
  inner_interrupted = 0;
}

}  // namespace tessera::cli
