#include "comm/mpi/launch.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "comm/mpi/mpi_transport.h"
#include "comm/mpi/progress.h"
#include "tensor/work_count.h"

namespace tessera::comm::mpi {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The time of SIGTERM, or 0. A signal handler can reach nothing else.
std::atomic<int64_t> terminated{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// SIGTERM ends the run, not the process, for an exit with the right status.
class CatchSigterm {
 public:
  CatchSigterm() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      int64_t never = 0;
      terminated.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, &before_);
  }
  /// After a good run; after a failure mpirun may signal again before the exit.
  void release() { sigaction(SIGTERM, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

constexpr auto kTell = 200ms;     // the designated rank reports before the last moment,
constexpr auto kShout = 60ms;     // then ranks without news report:
constexpr auto kServe = 50ms;     // until then they listen
constexpr auto kStagger = 200ms;  // between ranks without knowledge of each other

// This process's number from mpirun, before MPI starts.
int launcher_rank() {
  const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
  int rank = 0;
  if (text) std::from_chars(text, text + std::string_view(text).size(), rank);
  return std::clamp(rank, 0, 65535);
}

// A rank between its start and its end, used by three threads: the body's,
// MPI's and the watch's.  All ranks of a failed world end at one moment, half
// of `grace` after the failure: mpirun kills the rest soon after the first
// ends.
class Rank {
 public:
  explicit Rank(const Options& options)
      : options_(options),
        launcher_rank_(launcher_rank()),
        limit_(Clock::now() + options.deadline) {}

  void run(const std::function<void(Communicator&)>& body);

 private:
  enum class Phase { starting, failed, serving, finishing, over };
  void own_mpi();
  void enter(Phase phase);
  void watch(const std::stop_token& stop);
  struct LastMoment {
    Clock::time_point moment = Clock::time_point::max();
    Error error{ErrorCode::rank, ""};
    bool speaks = false, others_tell = false;
    Clock::time_point tells() const { return moment - (speaks ? kTell : kShout); }
  };
  LastMoment last_moment();
  void report(const LastMoment& last);
  std::exception_ptr work(const std::function<void(Communicator&)>& body);

  const Options options_;
  const int launcher_rank_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>(options_.deadline);
  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::starting;      // under mutex_
  Clock::time_point limit_;            // under mutex_: for starting and finishing
  std::optional<Error> start_failed_;  // under mutex_
  bool reported_ = false;              // under mutex_
  bool returning_ = false;             // under mutex_: the body has ended, and MPI
};

void Rank::enter(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
    limit_ = Clock::now() + options_.deadline;
  }
  changed_.notify_all();
}

void Rank::own_mpi() {
  try {
    progress_->start();
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      start_failed_ = Error(ErrorCode::rank, error.what());
    }
    return enter(Phase::failed);
  }
  enter(Phase::serving);
  try {
    progress_->serve(options_.grace / 2 - kServe);
    if (!progress_->fate().failure()) {
      enter(Phase::finishing);
      if (options_.ending) options_.ending(options_.deadline);
      progress_->finish();
    }
  } catch (const std::exception& error) {
    progress_->broken(Error(ErrorCode::rank, error.what()));
  }
  enter(Phase::over);
}

// The last moment of this rank, and the reason. Under mutex_.
Rank::LastMoment Rank::last_moment() {
  if (phase_ == Phase::failed) return {};
  if (phase_ == Phase::serving || phase_ == Phase::over) {
    const auto failure = progress_->fate().failure();
    if (!failure) return {};
    const Error error(failure->code, failure->error.what());
    return {failure->since + options_.grace / 2, error, progress_->speaks(), !progress_->unheard()};
  }
  // Ranks cannot reach each other here. The lowest reports; mpirun ends the others afterwards.
  const char* phase = phase_ == Phase::starting ? "starts" : "ends";
  if (const int64_t signal = terminated; signal != 0)
    return {
        Clock::time_point{Clock::duration(signal)} - Progress::kHurry + options_.grace / 2,
        Error(ErrorCode::rank,
              fmt::format("the launcher of MPI ended this run (SIGTERM) while MPI {}; it says why",
                          phase)),
        launcher_rank_ == 0, launcher_rank_ != 0};
  return {limit_ + kStagger * std::min(launcher_rank_, 16),
          Error(ErrorCode::rank,
                fmt::format("MPI did not get on within {} s while it {}; see that all hosts "
                            "reach each other, or raise `comm_timeout`",
                            std::chrono::duration<double>(options_.deadline).count(), phase)),
          false, false};
}

void Rank::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Clock::duration wait = 10ms;
    bool serving = false;
    {
      const std::lock_guard lock(mutex_);
      if (returning_) return;
      const LastMoment last = last_moment();
      const auto now = Clock::now();
      if (now >= last.tells()) report(last);
      if (now >= last.moment) options_.give_up(EchoError(last.error.code(), last.error.what()));
      if (now < last.moment) wait = std::min(wait, last.moment - now);
      serving = phase_ == Phase::serving;
    }
    const auto limit = std::chrono::duration_cast<std::chrono::microseconds>(wait);
    const int64_t signal = terminated;
    if (serving)
      progress_->look_after(
          limit, signal ? std::optional(Clock::time_point(Clock::duration(signal))) : std::nullopt);
    else
      std::this_thread::sleep_for(limit);
  }
}

// Before the last moment, because others may end this process. Under mutex_.
void Rank::report(const LastMoment& last) {
  if (reported_ || (last.others_tell && !last.speaks)) return;
  reported_ = true;
  options_.report(last.error);
  if (phase_ == Phase::serving) progress_->set_reported();
}

std::exception_ptr Rank::work(const std::function<void(Communicator&)>& body) {
  const tensor::BindWorkCount counted(&progress_->count());
  try {
    const auto world =
        Communicator::world(std::make_shared<MpiTransport>(progress_), options_.deadline);
    body(*world);
    return nullptr;
  } catch (const Error& error) {
    progress_->fail(error);
    return std::current_exception();
  } catch (const std::exception& error) {
    progress_->fail(Error(ErrorCode::rank, error.what()));
    return std::current_exception();
  } catch (...) {  // a caller's callback may throw anything
    progress_->fail(Error(ErrorCode::rank, "a rank threw what is no std::exception"));
    return std::current_exception();
  }
}

void Rank::run(const std::function<void(Communicator&)>& body) {
  CatchSigterm sigterm;
  std::jthread watcher([this](const std::stop_token& stop) { watch(stop); });
  std::jthread mpi([this] { own_mpi(); });
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return phase_ != Phase::starting; });
    if (start_failed_) throw Error(*start_failed_);
  }
  const std::exception_ptr own = work(body);
  progress_->end();
  mpi.join();
  const auto failure = progress_->fate().failure();
  if (!failure) return sigterm.release();
  const auto last = failure->since + options_.grace / 2;
  std::this_thread::sleep_until(last - 20ms);
  {
    const std::lock_guard lock(mutex_);  // not during the watch's give_up
    returning_ = true;
    report(last_moment());
  }
  watcher = {};
  std::this_thread::sleep_until(last - 1ms);
  while (Clock::now() < last) {
  }
  std::rethrow_exception(progress_->fate().verdict(own));
}

}  // namespace

void run(const Options& options, const std::function<void(Communicator& world)>& body) {
  static std::atomic<bool> used{false};  // as MPI's own state
  require(!used.exchange(true), ErrorCode::plan,
          "MPI runs once in a process; do all work in one run, or start another process");
  require(options.report && options.give_up, ErrorCode::usage,
          "mpi::run needs a way to report and one to give up");
  Rank(options).run(body);
}

}  // namespace tessera::comm::mpi
