#include "comm/mpi/progress.h"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "comm/mpi/orphan.h"

namespace tessera::comm::mpi {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kHeaderTag = 1, kBytesTag = 2, kNoticeTag = 3;
// Messages up to this size travel with their header, below every eager limit of Open MPI.
constexpr int64_t kInline = 912;
// Larger ones in parts, whose size fits MPI's int.
constexpr int64_t kPart = int64_t{16} << 20;
constexpr auto kBeat = 100ms;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ErrorCode::rank, "{} failed: {}; see what mpirun says of the network", call, text);
}

}  // namespace

// A message or notice under way, alive until MPI has no more use for it.
struct Progress::Flight {
  uint64_t channel = 0;
  Message message;
  std::vector<char> head;  // header and what travels with it, or a notice
  int open = 0;            // requests
  int from = -1;           // of what is received
};

Progress::Progress() = default;
Progress::~Progress() = default;

void Progress::start() {
  // Other processes' memory is not read: they may be gone, and Open MPI would end this one.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // Short fragments: one long "put" keeps a socket's other direction waiting, and halves the rate.
  setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
  setenv("OMPI_MCA_btl_tcp_max_send_size", "65536", 0);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  std::signal(SIGPIPE, SIG_IGN);  // a peer that closes its socket
  int level = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  require(level >= MPI_THREAD_FUNNELED, ErrorCode::rank,
          "this MPI was built without threads; install one that has MPI_THREAD_FUNNELED");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &ranks_);
  std::vector<Whereabouts> where(static_cast<size_t>(ranks_));
  const Whereabouts here = Whereabouts::here();
  check(MPI_Allgather(&here, sizeof here, MPI_BYTE, where.data(), sizeof here, MPI_BYTE, world_),
        "MPI_Allgather");
  fate_ = std::make_unique<Fate>(rank_, ranks_);
  peers_ = std::make_unique<Peers>(rank_, where, Clock::now());
  outlive_mpirun();
  incoming_.resize(where.size());
  beats_.resize(where.size());
}

void Progress::finish() {
  MPI_Comm_free(&world_);
  check(MPI_Finalize(), "MPI_Finalize");
}

void Progress::send(int to, uint64_t channel, Message message) {
  if (to == rank_) return inbox_.deliver(channel, rank_, std::move(message));
  describe(channel, message);  // throws here, not on the thread that sends
  {
    const std::lock_guard lock(mutex_);
    queued_.push_back({to, channel, std::move(message)});
  }
  wake_.notify_one();
}

void Progress::tell(const Notice& notice) {
  {
    const std::lock_guard lock(mutex_);
    notices_.push_back(notice);
  }
  wake_.notify_one();
}

bool Progress::adopt(const Error& error, int origin, bool lost, Time since) {
  int speaker = 0;  // the lowest rank that is left
  while (lost && speaker < rank_ && (peers_->gone(speaker) || speaker == origin)) ++speaker;
  if (!fate_->fail(error, origin, lost, since)) return false;
  speaker_ = speaker;
  inbox_.fail(error);
  return true;
}

void Progress::declare(const Error& error, int origin, bool lost, Time since) {
  if (!adopt(error, origin, lost, since)) return;
  Notice notice;
  notice.kind = Notice::failed;
  notice.code = static_cast<int32_t>(error.code());
  notice.origin = origin;
  notice.lost = lost ? 1 : 0;
  notice.since = since.time_since_epoch().count();
  const std::string text =
      lost ? error.what() : fmt::format("rank {} failed: {}", origin, error.what());
  text.copy(notice.text, sizeof notice.text - 1);
  tell(notice);
}

void Progress::fail(const Error& error) {
  // A wait that lasted too long may have a cause that others are about to tell: this process may
  // itself have been stopped, and its clock went on.
  for (int i = 0; error.code() == ErrorCode::rank && i < 20 && !fate_->failure(); ++i)
    std::this_thread::sleep_for(10ms);
  declare(error, rank_, false, Clock::now());
}

void Progress::end() {
  fate_->done(rank_);
  Notice notice;
  notice.kind = Notice::done;
  tell(notice);
  ending_ = true;
}

void Progress::post(int to, const Notice& notice) {
  const auto flight = std::make_shared<Flight>();
  Notice stamped = notice;
  stamped.progress = count_;
  flight->head.resize(size_of(stamped));
  std::memcpy(flight->head.data(), &stamped, flight->head.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(flight->head.data(), static_cast<int>(flight->head.size()), MPI_BYTE, to,
                  kNoticeTag, world_, &request),
        "MPI_Isend");
  flight->open = 1;
  requests_.push_back(request);
  flights_.push_back(flight);
  if (notice.kind == Notice::alive) beats_[static_cast<size_t>(to)] = flight;
}

void Progress::post_parts(const std::shared_ptr<Flight>& flight, char* bytes, int64_t size,
                          int peer, bool receive) {
  for (int64_t at = 0; at < size; at += kPart) {
    const int part = static_cast<int>(std::min(kPart, size - at));
    MPI_Request request = MPI_REQUEST_NULL;
    if (receive)
      check(MPI_Irecv(bytes + at, part, MPI_BYTE, peer, kBytesTag, world_, &request), "MPI_Irecv");
    else
      check(MPI_Isend(bytes + at, part, MPI_BYTE, peer, kBytesTag, world_, &request), "MPI_Isend");
    ++flight->open;
    requests_.push_back(request);
    flights_.push_back(flight);
  }
}

void Progress::post(Outgoing& out) {
  const auto flight = std::make_shared<Flight>();
  flight->message = std::move(out.message);
  const Header header = describe(out.channel, flight->message);
  const size_t along = header.bytes <= kInline ? static_cast<size_t>(header.bytes) : 0;
  flight->head.resize(sizeof header + along);
  std::memcpy(flight->head.data(), &header, sizeof header);
  char* bytes = static_cast<char*>(flight->message.data.raw());
  if (along > 0) std::memcpy(flight->head.data() + sizeof header, bytes, along);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(flight->head.data(), static_cast<int>(flight->head.size()), MPI_BYTE, out.to,
                  kHeaderTag, world_, &request),
        "MPI_Isend");
  flight->open = 1;
  requests_.push_back(request);
  flights_.push_back(flight);
  if (header.bytes > kInline) post_parts(flight, bytes, header.bytes, out.to, false);
}

bool Progress::send_queued() {
  std::deque<Outgoing> queued;
  std::deque<Notice> notices;
  {
    const std::lock_guard lock(mutex_);
    queued.swap(queued_);
    notices.swap(notices_);
  }
  for (Outgoing& out : queued) post(out);
  for (const Notice& notice : notices)
    for (int to = 0; to < ranks_; ++to)
      if (to != rank_) post(to, notice);
  return !queued.empty() || !notices.empty();
}

bool Progress::take_headers() {
  char buffer[sizeof(Header) + kInline];
  for (bool any = false;; any = true) {
    int there = 0, size = 0;
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kHeaderTag, world_, &there, &matched, &status),
          "MPI_Improbe");
    if (!there) return any;
    MPI_Get_count(&status, MPI_BYTE, &size);
    require(size >= static_cast<int>(sizeof(Header)) && size <= static_cast<int>(sizeof buffer),
            ErrorCode::rank, "a header of {} bytes arrived from rank {}", size, status.MPI_SOURCE);
    check(MPI_Mrecv(buffer, size, MPI_BYTE, &matched, MPI_STATUS_IGNORE), "MPI_Mrecv");
    Header header;
    std::memcpy(&header, buffer, sizeof header);
    const auto flight = std::make_shared<Flight>();
    flight->from = status.MPI_SOURCE;
    flight->channel = header.channel;
    flight->message = announced(header, names_);
    const int64_t along = header.bytes <= kInline ? header.bytes : 0;
    require(size == static_cast<int>(sizeof header) + along, ErrorCode::rank,
            "a header of {} bytes arrived from rank {}, which says {}", size, flight->from,
            header.bytes);
    char* bytes = static_cast<char*>(flight->message.data.raw());
    if (along > 0) std::memcpy(bytes, buffer + sizeof header, static_cast<size_t>(along));
    incoming_[static_cast<size_t>(flight->from)].push_back(flight);
    if (header.bytes > kInline) post_parts(flight, bytes, header.bytes, flight->from, true);
    deliver(flight->from);
  }
}

// What has arrived in full, in the order in which it was sent.
void Progress::deliver(int from) {
  auto& queue = incoming_[static_cast<size_t>(from)];
  while (!queue.empty() && queue.front()->open == 0) {
    inbox_.deliver(queue.front()->channel, from, std::move(queue.front()->message));
    queue.pop_front();
  }
}

bool Progress::take_notices() {
  for (bool any = false;; any = true) {
    int there = 0, size = 0;
    char buffer[sizeof(Notice)];
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kNoticeTag, world_, &there, &matched, &status),
          "MPI_Improbe");
    if (!there) return any;
    MPI_Get_count(&status, MPI_BYTE, &size);
    require(size <= static_cast<int>(sizeof buffer), ErrorCode::rank,
            "a notice of {} bytes arrived from rank {}", size, status.MPI_SOURCE);
    check(MPI_Mrecv(buffer, size, MPI_BYTE, &matched, MPI_STATUS_IGNORE), "MPI_Mrecv");
    const Notice notice = read_notice(buffer, static_cast<size_t>(size), ranks_);
    const int from = status.MPI_SOURCE;
    peers_->heard(from, notice.progress, Clock::now());
    if (notice.kind == Notice::done) fate_->done(from);
    if (notice.kind == Notice::left) peers_->left(from);
    if (notice.kind == Notice::failed) {
      // All processes of a machine count from the same moment; other machines have another clock.
      const Time now = Clock::now(), there_since{Clock::duration(notice.since)};
      const bool near = there_since <= now && now - there_since < 200ms;
      adopt(Error(ErrorCode::rank, notice.text), notice.origin, notice.lost != 0,
            near ? there_since : now);
    }
  }
}

bool Progress::complete() {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                     MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  if (count <= 0) return false;
  for (int i = 0; i < count; ++i) {
    const auto flight = flights_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    if (--flight->open == 0 && flight->from >= 0) deliver(flight->from);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    flights_[kept++] = std::move(flights_[i]);
  }
  requests_.resize(kept);
  flights_.resize(kept);
  return true;
}

void Progress::heartbeat(Time now) {
  if (now < next_beat_) return;
  next_beat_ = now + kBeat;
  for (int to = 0; to < ranks_; ++to) {
    const auto& last = beats_[static_cast<size_t>(to)];
    if (to != rank_ && (!last || last->open == 0)) post(to, Notice{});
  }
}

void Progress::lose(int rank, const char* why, Time since) {
  const Error error(ErrorCode::rank, fmt::format("rank {} was lost: {}", rank, why));
  declare(error, rank, true, since);
}

void Progress::look_after(std::chrono::microseconds limit, std::optional<Time> terminated) {
  const int gone = peers_->await_end(limit);
  const Time now = Clock::now();
  if (now - looked_ > 1s) awake_ = now;  // this process stood still, and has much to read
  looked_ = now;
  if (fate_->failure()) return;
  // A rank that is lost may be why mpirun ends, and is then the cause.
  if (const auto since = orphaned_since(); since && now - *since > 200ms)
    return declare(Error(ErrorCode::rank, "mpirun, or its daemon on this host, has ended"), -1,
                   true, *since);
  // What it said before its end may still be on the way.
  if (gone >= 0 && now - peers_->gone_at(gone) > 50ms)
    return lose(gone, "its process has ended", peers_->gone_at(gone));
  const int silent = now - awake_ > deadline_.load() ? peers_->silent(now, deadline_, false) : -1;
  if (silent >= 0) return lose(silent, "nothing was heard of it for too long", now);
  if (!terminated || gone >= 0 || now - *terminated < 100ms) return;
  const int missing = peers_->silent(now, 3 * kBeat, true);
  if (missing >= 0) return lose(missing, "it is silent since mpirun ends the run", *terminated);
  declare(Error(ErrorCode::rank, "mpirun ended this run (SIGTERM)"), -1, true, *terminated);
}

bool Progress::over(std::chrono::milliseconds grace) const {
  const auto failure = fate_->failure();
  if (failure) return Clock::now() - failure->since > grace;
  return fate_->all_done() && requests_.empty();
}

void Progress::idle() {
  std::unique_lock lock(mutex_);
  if (queued_.empty() && notices_.empty()) wake_.wait_for(lock, 50us);
}

void Progress::serve(std::chrono::milliseconds deadline, std::chrono::milliseconds grace) {
  deadline_ = deadline;
  const auto move = [&] {
    bool moved = send_queued();
    moved = take_headers() || moved;
    moved = complete() || moved;
    moved = take_notices() || moved;
    heartbeat(Clock::now());
    return moved;
  };
  for (;;) {
    const bool ending = ending_;  // asked first: what end() tells is sent by then
    if (move()) continue;
    if (ending && over(grace)) break;
    idle();
  }
  if (!fate_->failure()) return;
  Notice notice;
  notice.kind = Notice::left;
  tell(notice);
  for (const Time last = Clock::now() + 30ms; Clock::now() < last && !requests_.empty();) move();
}

void Progress::broken(const Error& error) {
  for (int i = 0; i < 20 && !fate_->failure(); ++i) std::this_thread::sleep_for(10ms);
  adopt(error, rank_, false, Clock::now());
}

}  // namespace tessera::comm::mpi
