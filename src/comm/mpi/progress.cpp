#include "comm/mpi/progress.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "comm/mpi/orphan.h"
#include "comm/transport.h"

namespace tessera::comm::mpi {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kHeaderTag = 1, kBytesTag = 2, kNoticeTag = 3, kFirstCutTag = 16;
// Messages up to this size travel with their header, below every eager limit of Open MPI.
constexpr int64_t kInline = 1024 - sizeof(Header);
// Larger messages go in parts, with a tag for each message under way, so few are cut. A socket
// sends smaller ones in sequence, whole.
constexpr int64_t kWhole = int64_t{1} << 16;
constexpr uint64_t kCutTags = 8192;
constexpr auto kBeat = 100ms;
// A look at the network costs a busy core 20 to 50 us, most of it for the timer.
constexpr auto kAwake = 50us;      // between looks of a waiting rank, after a movement,
constexpr auto kUnderWay = 200us;  // for a computing rank with messages under way,
constexpr auto kRarely = 4ms;      // and at most
constexpr auto kBetween = 1ms;     // looks between two pieces of work

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ErrorCode::rank, "{} failed: {}; see what the launcher of MPI says of the network", call,
       text);
}

// Linux runs a woken thread at once if its slice is short, otherwise up to some milliseconds later
// on a busy core. Older kernels ignore the setting.
void run_as_soon_as_awake() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;  // the user's own setting
  struct {
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = getpriority(PRIO_PROCESS, 0);
    uint32_t priority = 0;
    uint64_t slice = 100'000, deadline = 0, period = 0;  // ns
  } attributes;
  syscall(SYS_sched_setattr, 0, &attributes, 0U);
}

}  // namespace

// A message or notice under way, alive until MPI is done with its memory.
struct Progress::Flight {
  uint64_t channel = 0;
  Message message;
  std::vector<char> head;  // header with inline data, or a notice
  int open = 0;            // requests
  int from = -1, to = -1;  // part of from, to
  bool cut = false;
  bool incoming() const { return from >= 0; }
};

Progress::Progress(std::chrono::milliseconds deadline)
    : deadline_(std::max<decltype(deadline)>(deadline, 10 * kBeat)) {}
Progress::~Progress() = default;

void Progress::start() {
  // No reads of other processes' memory: processes may be gone, and Open MPI would end this one.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  setenv("OMPI_MCA_smsc", "^cma,knem,xpmem", 0);  // the same since Open MPI 5
  // Short fragments: a long "put" blocks a socket's other direction, and halves the rate.
  setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
  setenv("OMPI_MCA_btl_tcp_max_send_size", "65536", 0);
  // Many at once: a computing rank looks rarely.
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "16", 0);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  run_as_soon_as_awake();
  std::signal(SIGPIPE, SIG_IGN);  // for a peer with a closed socket
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
  const Whereabouts own_place = Whereabouts::here();
  check(MPI_Allgather(&own_place, sizeof own_place, MPI_BYTE, where.data(), sizeof own_place,
                      MPI_BYTE, world_),
        "MPI_Allgather");
  fate_ = std::make_unique<Fate>(rank_, ranks_);
  peers_ = std::make_unique<Peers>(rank_, where, Clock::now());
  outlive_mpirun();
  lanes_ = std::vector<Lane>(where.size());
}

void Progress::finish() {
  MPI_Comm_free(&world_);
  check(MPI_Finalize(), "MPI_Finalize");
}

void Progress::send(int to, uint64_t channel, Message message) {
  if (to == rank_) return inbox_.deliver(channel, rank_, std::move(message));
  describe(channel, message);  // throws here, not on the sending thread
  lanes_[static_cast<size_t>(to)].sent += static_cast<uint64_t>(message.data.bytes());
  {
    const std::lock_guard lock(mutex_);
    queued_.push_back({to, channel, std::move(message)});
  }
  wake_.notify_one();
}

void Progress::advance() {
  ++count_;
  if (Clock::now().time_since_epoch().count() >= due_) {
    due_ = kNever;
    wake_.notify_one();
  }
}

void Progress::wait_for(int rank) {
  {
    const std::lock_guard lock(mutex_);
    waits_for_ = rank;
  }
  if (rank >= 0) wake_.notify_one();
}

void Progress::await_room(int to, uint64_t limit, const std::function<void()>& expired) {
  if (to == rank_) return;
  const Lane& lane = lanes_[static_cast<size_t>(to)];
  while (lane.sent - lane.accepted > limit) {
    if (const auto failure = fate_->failure()) throw Error(failure->error);
    {
      std::unique_lock lock(mutex_);
      room_.wait_for(lock, 20ms);
    }
    expired();
  }
}

void Progress::tell(const Notice& notice) {
  {
    const std::lock_guard lock(mutex_);
    notices_.push_back(notice);
  }
  wake_.notify_one();
}

bool Progress::adopt(const Error& error, ErrorCode code, int origin, bool lost, Time since) {
  int speaker = 0;  // the lowest rank left
  while (lost && speaker < rank_ && (peers_->gone(speaker) || speaker == origin)) ++speaker;
  if (!fate_->fail(error, code, origin, lost, since)) return false;
  speaker_ = speaker;
  inbox_.fail(error);
  room_.notify_all();
  return true;
}

void Progress::set_reported() {
  fate_->set_reported();
  Notice notice;
  notice.kind = Notice::reported;
  tell(notice);
}

void Progress::declare(const Error& error, int origin, bool lost, Time since) {
  if (!adopt(error, error.code(), origin, lost, since)) return;
  Notice notice;
  notice.kind = Notice::failed;
  notice.code = static_cast<int32_t>(error.code());
  notice.origin = origin;
  notice.lost = lost ? 1 : 0;
  notice.since = since.time_since_epoch().count();
  const std::string_view message = error.what();
  const bool says_who = lost || message.starts_with(fmt::format("rank {}, ", origin));
  const std::string text =
      fmt::format("{}{}", says_who ? "" : fmt::format("rank {} failed: ", origin), message);
  text.copy(notice.text, sizeof notice.text - 1);
  tell(notice);
}

void Progress::fail(const Error& error) {
  // Another rank may be about to report the cause of a long wait: this process may have been
  // stopped itself while its clock went on.
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

void Progress::keep(MPI_Request request, const std::shared_ptr<Flight>& flight, int64_t bytes) {
  ++flight->open;
  requests_.push_back(request);
  parts_.push_back({flight, bytes});
}

void Progress::post(int to, const Notice& notice) {
  Lane& lane = lanes_[static_cast<size_t>(to)];
  const auto flight = std::make_shared<Flight>();
  Notice stamped = notice;
  stamped.progress = count_;
  stamped.accepted = lane.reported_bytes = inbox_.accepted(to);
  stamped.waits_for = waits_for_;
  flight->head.resize(size_of(stamped));
  std::memcpy(flight->head.data(), &stamped, flight->head.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(flight->head.data(), static_cast<int>(flight->head.size()), MPI_BYTE, to,
                  kNoticeTag, world_, &request),
        "MPI_Isend");
  keep(request, flight, 0);
  if (notice.kind == Notice::alive) lane.beat = flight;
}

void Progress::post_part(const std::shared_ptr<Flight>& flight, int64_t begin, int64_t size,
                         int tag) {
  moved_ = Clock::now();
  char* const bytes = static_cast<char*>(flight->message.data.raw()) + begin;
  MPI_Request request = MPI_REQUEST_NULL;
  const int part = static_cast<int>(size);
  if (flight->incoming())
    check(MPI_Irecv(bytes, part, MPI_BYTE, flight->from, tag, world_, &request), "MPI_Irecv");
  else
    check(MPI_Isend(bytes, part, MPI_BYTE, flight->to, tag, world_, &request), "MPI_Isend");
  keep(request, flight, size);
}

// The data behind a header. Both sides count the messages in parts.
void Progress::post_body(const std::shared_ptr<Flight>& flight) {
  const int64_t size = flight->message.data.bytes();
  if (size <= kWhole) return post_part(flight, 0, size, kBytesTag);
  flight->cut = true;
  Lane& lane = lanes_[static_cast<size_t>(flight->incoming() ? flight->from : flight->to)];
  if (!flight->incoming()) {
    lane.cut[lane.cut_out] = flight;
    lane.parts.add(lane.cut_out++, size);
    return post_next(lane);
  }
  const int tag = kFirstCutTag + static_cast<int>(lane.cut_in++ % kCutTags);
  for (int64_t at = 0; at < size; at += PartQueue::kPart)
    post_part(flight, at, std::min(PartQueue::kPart, size - at), tag);
}

void Progress::post_next(Lane& lane) {
  while (const auto part = lane.parts.next()) {
    const auto flight = lane.cut.at(part->message);
    post_part(flight, part->begin, part->size,
              kFirstCutTag + static_cast<int>(part->message % kCutTags));
    if (part->last) lane.cut.erase(part->message);
  }
}

void Progress::post(Outgoing& out) {
  moved_ = Clock::now();
  const auto head = std::make_shared<Flight>();
  const Header header = describe(out.channel, out.message);
  const size_t along = header.bytes <= kInline ? static_cast<size_t>(header.bytes) : 0;
  head->head.resize(sizeof header + along);
  std::memcpy(head->head.data(), &header, sizeof header);
  if (along > 0) std::memcpy(head->head.data() + sizeof header, out.message.data.raw(), along);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(head->head.data(), static_cast<int>(head->head.size()), MPI_BYTE, out.to,
                  kHeaderTag, world_, &request),
        "MPI_Isend");
  keep(request, head, 0);
  if (header.bytes <= kInline) return;
  const auto body = std::make_shared<Flight>();
  body->message = std::move(out.message);
  body->to = out.to;
  post_body(body);
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
    int has_message = 0, size = 0;
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kHeaderTag, world_, &has_message, &matched, &status),
          "MPI_Improbe");
    if (!has_message) return any;
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
    if (along > 0)
      std::memcpy(flight->message.data.raw(), buffer + sizeof header, static_cast<size_t>(along));
    if (header.bytes > kInline) post_body(flight);
    if (flight->open == 0) land(flight);
  }
}

void Progress::land(const std::shared_ptr<Flight>& flight) {
  moved_ = Clock::now();
  inbox_.deliver(flight->channel, flight->from, std::move(flight->message));
}

bool Progress::take_notices() {
  for (bool any = false;; any = true) {
    int has_message = 0, size = 0;
    char buffer[sizeof(Notice)];
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kNoticeTag, world_, &has_message, &matched, &status),
          "MPI_Improbe");
    if (!has_message) return any;
    MPI_Get_count(&status, MPI_BYTE, &size);
    require(size <= static_cast<int>(sizeof buffer), ErrorCode::rank,
            "a notice of {} bytes arrived from rank {}", size, status.MPI_SOURCE);
    check(MPI_Mrecv(buffer, size, MPI_BYTE, &matched, MPI_STATUS_IGNORE), "MPI_Mrecv");
    note(read_notice(buffer, static_cast<size_t>(size), ranks_), status.MPI_SOURCE);
  }
}

void Progress::note(const Notice& notice, int from) {
  const Time now = Clock::now();
  peers_->heard(from, notice.progress, notice.waits_for, now);
  auto& accepted = lanes_[static_cast<size_t>(from)].accepted;
  if (notice.accepted > accepted) {
    accepted = notice.accepted;
    room_.notify_all();
  }
  if (notice.kind == Notice::done) fate_->done(from);
  if (notice.kind == Notice::left) peers_->left(from);
  if (notice.kind == Notice::reported) fate_->set_reported();
  if (notice.kind == Notice::signalled) fate_->signalled(from);
  if (notice.kind != Notice::failed) return;
  // All processes of a machine share a clock; other machines have another.
  const Time there_since{Clock::duration(notice.since)};
  const bool near = there_since <= now && now - there_since < 400ms;
  adopt(Error(ErrorCode::rank, notice.text), static_cast<ErrorCode>(notice.code), notice.origin,
        notice.lost != 0, near ? there_since : now);
}

// Messages may take longer than the deadline: a received part is progress and a sign of life of its
// sender, whose heartbeats are behind.
void Progress::part_ended(const Part& part) {
  const auto& [flight, bytes] = part;
  --flight->open;
  if (flight->incoming()) {
    advance();
    peers_->alive(flight->from, Clock::now());
    if (flight->open == 0) land(flight);
  } else if (flight->cut) {
    Lane& lane = lanes_[static_cast<size_t>(flight->to)];
    lane.parts.ended(bytes);
    post_next(lane);
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
  moved_ = Clock::now();
  for (int i = 0; i < count; ++i)
    part_ended(Part(parts_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]));
  size_t open_parts = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[open_parts] = requests_[i];
    parts_[open_parts++] = std::move(parts_[i]);
  }
  requests_.resize(open_parts);
  parts_.resize(open_parts);
  return true;
}

void Progress::heartbeat(Time now) {
  if (now >= next_credit_) {
    next_credit_ = now + 1ms;
    for (int to = 0; to < ranks_; ++to)
      if (to != rank_ && inbox_.accepted(to) - lanes_[static_cast<size_t>(to)].reported_bytes >
                             Transport::kMostAhead / 8)
        post(to, Notice{});
  }
  if (now < next_beat_) return;
  next_beat_ = now + kBeat;
  for (int to = 0; to < ranks_; ++to) {
    const auto& last = lanes_[static_cast<size_t>(to)].beat;
    if (to != rank_ && (!last || last->open == 0)) post(to, Notice{});
  }
}

void Progress::lose(int rank, const char* reason, Time since) {
  const Error error(ErrorCode::rank, fmt::format("rank {} was lost: {}", rank, reason));
  declare(error, rank, true, since);
}

void Progress::look_after(std::chrono::microseconds limit, std::optional<Time> terminated) {
  const int ended_rank = peers_->await_end(limit);
  const Time now = Clock::now();
  if (now - looked_ > 1s) awake_ = now;  // after a stop of this process, with much to read
  looked_ = now;
  if (fate_->failure()) return;
  // A lost rank may be the reason for mpirun's end, and is then the cause.
  if (const auto since = orphaned_since(); since && now - *since > 200ms)
    return declare(
        Error(ErrorCode::rank, "the launcher of MPI, or its daemon on this host, has ended"), -1,
        true, *since);
  // Its last messages may still be under way.
  if (ended_rank >= 0 && now - peers_->gone_at(ended_rank) > 50ms)
    return lose(ended_rank, "its process has ended", peers_->gone_at(ended_rank));
  const int silent = now - awake_ > deadline_ ? peers_->silent(now, deadline_, false) : -1;
  if (silent >= 0) return lose(silent, "nothing was heard of it for too long", now);
  if (terminated && ended_rank < 0) look_at_signal(now, *terminated);
}

// mpirun sends SIGTERM to all ranks, somebody else to one.
void Progress::look_at_signal(Time now, Time terminated) {
  if (!std::exchange(signalled_, true)) {
    fate_->signalled(rank_);
    Notice notice;
    notice.kind = Notice::signalled;
    tell(notice);
  }
  if (now - terminated < 60ms) return;
  const Time since = terminated - kHurry;
  const int missing = peers_->silent(now, 3 * kBeat, true);
  if (missing >= 0)
    return lose(missing, "it is silent since the launcher of MPI ends the run", since);
  const std::vector<int> signalled_ranks = fate_->signalled();
  if (ranks_ > 1 && static_cast<int>(signalled_ranks.size()) < ranks_)
    declare(Error(ErrorCode::rank, fmt::format("rank{} {} {} ended by SIGTERM",
                                               signalled_ranks.size() == 1 ? "" : "s",
                                               fmt::join(signalled_ranks, ", "),
                                               signalled_ranks.size() == 1 ? "was" : "were")),
            rank_, true, since);
  else
    declare(Error(ErrorCode::rank, "the launcher of MPI ended this run (SIGTERM)"), -1, true,
            since);
}

bool Progress::speaks() const {
  const auto failure = fate_->failure();
  if (!failure->lost) return fate_->first_to_fail();
  return speaker_ == rank_ && failure->origin != rank_;
}

bool Progress::unheard() const {
  const auto failure = fate_->failure();
  const std::vector<int> ended = fate_->signalled();
  return failure->lost && failure->origin >= 0 && !peers_->gone(failure->origin) &&
         std::find(ended.begin(), ended.end(), failure->origin) == ended.end() &&
         !fate_->reported();
}

bool Progress::over(std::chrono::milliseconds grace) const {
  const auto failure = fate_->failure();
  if (failure) return Clock::now() - failure->since > grace;
  return fate_->all_done() && requests_.empty();
}

// Waits grow with the time without movement: by a small part on a waiting rank, whose core is
// idle.
void Progress::idle() {
  using std::chrono::microseconds;
  const Time now = Clock::now();
  const auto quiet = std::chrono::duration_cast<microseconds>(now - moved_);
  std::unique_lock lock(mutex_);
  microseconds pause = kRarely;
  if (waits_for_ >= 0)
    pause = std::clamp<microseconds>(quiet / 32, kAwake, kRarely);
  else if (!requests_.empty())
    pause = std::clamp<microseconds>(quiet, kUnderWay, kRarely);
  due_ = (now + kBetween).time_since_epoch().count();
  if (queued_.empty() && notices_.empty()) wake_.wait_for(lock, pause);
  due_ = kNever;
}

void Progress::serve(std::chrono::milliseconds grace) {
  const auto move = [&] {
    bool progress = send_queued();
    progress = take_headers() || progress;
    progress = complete() || progress;
    progress = take_notices() || progress;
    heartbeat(Clock::now());
    return progress;
  };
  for (;;) {
    const bool ending = ending_;  // read first: end() has sent everything by then
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
  adopt(error, error.code(), rank_, false, Clock::now());
}

}  // namespace tessera::comm::mpi
