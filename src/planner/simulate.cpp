#include "planner/simulate.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "base/fail.h"
#include "planner/cost.h"
#include "planner/routes.h"

namespace tessera::planner {
namespace {

constexpr int64_t kSmall = 16384;  // bytes; small messages never queue behind others

/// A replay of a recording with `steps` steps.
class Replay {
 public:
  Replay(const Recording& recording, const Cluster& cluster, int steps, bool spans)
      : recording_(recording),
        steps_(steps),
        cluster_(cluster),
        routes_(cluster, static_cast<int>(recording.ranks.size())),
        spans_(spans),
        free_(static_cast<size_t>(routes_.links())),
        bytes_(free_.size()),
        moving_(free_.size()),
        expected_(recording.ways.size()),
        arrived_(recording.ways.size()),
        parked_(recording.ways.size(), -1) {
    for (const Op& op : recording.ops)
      costs_.push_back({seconds_of(op, cluster.device, cluster.software),
                        cluster.software.host_op_seconds * kernels_of(op, cluster.software)});
    std::map<std::pair<std::string, int>, int> calls;
    for (const Letter& letter : recording.letters)
      calls_.push_back(
          calls.try_emplace({letter.operation, letter.site}, static_cast<int>(calls.size()))
              .first->second);
    ranks_.resize(recording.ranks.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].host = ranks_[r].device = ranks_[r].since = cluster.software.start_seconds;
      turns_.push({ranks_[r].device, static_cast<int>(r)});
    }
  }
  /// Runs until a rank has ended the parts before `part`.
  void run_to(int part);
  /// Runs to the end, with `steps` steps in all.
  Simulation run(int steps);

 private:
  struct Rank {
    int part = 0;  // 0: prepare, then the steps, then gather
    size_t event = 0;
    double host = 0, device = 0, compute = 0, wait = 0, since = 0;
    int call = -1;  // the last message belongs to this call; a new call costs host time
    bool connected = false, begun = false, ended = false;
  };
  using Turn = std::pair<double, int>;  // time and rank; the earlier time goes first

  const std::vector<Event>* events(int rank, int part) const {
    const RankRecording& own = recording_.ranks[static_cast<size_t>(rank)];
    if (part == 0) return &own.prepare;
    if (part <= steps_)
      return &own.steps[static_cast<size_t>(recording_.recorded(part - 1, steps_))];
    return part == steps_ + 1 ? &own.gather : nullptr;
  }
  void take_turns();
  void advance(int number);
  void send(int number);
  bool arrive(int number, const Event& event);
  struct Cost {
    double seconds = 0, host = 0;  // device seconds; host seconds
  };
  void compute(Rank& rank, const Cost& cost) {
    rank.host += cost.host;
    rank.device = std::max(rank.device, rank.host) + cost.seconds;
    rank.compute += cost.seconds;
  }
  // A CPU packs and sends a message, and takes its like from another rank.
  void work_on(Rank& rank, const Letter& letter) const {
    const Software& software = cluster_.software;
    double seconds = software.message_seconds;
    if (software.message_bytes_per_second > 0)
      seconds += double(letter.bytes) / software.message_bytes_per_second;
    rank.device += seconds;
    rank.compute += seconds;
  }
  void show(int number, const char* name, double begin, double end) {
    if (spans_ && end > begin)
      made_.spans.push_back(
          {begin, end, number, -1, name, ranks_[static_cast<size_t>(number)].part - 1});
  }
  double transmit(const Letter& letter, const Way& way, double begin, int step);

  const Recording& recording_;
  int steps_;
  int last_part_ = -1;        // ranks stop before this part; -1: at the end
  std::vector<int> stopped_;  // there
  const Cluster& cluster_;
  const Routes routes_;
  const bool spans_;
  std::vector<Cost> costs_;                    // by op
  std::vector<int> calls_;                     // a letter belongs to this call
  std::vector<double> free_, bytes_, moving_;  // a link is free then, moved bytes, was busy
  std::vector<uint64_t> expected_;             // a way expects so many messages
  std::vector<std::vector<double>> arrived_;   // a way's messages arrive at these times
  std::vector<int> parked_;                    // this rank waits for a way's next message
  std::vector<Rank> ranks_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  Simulation made_;
};

// Returns the arrival time.
double Replay::transmit(const Letter& letter, const Way& way, double begin, int step) {
  const Routes::Way& route = routes_.way(way.from, way.to);
  double end = begin;
  for (const int link : route.links) {
    const auto i = static_cast<size_t>(link);
    const double seconds = double(letter.bytes) / routes_.bytes_per_second(link);
    bytes_[i] += double(letter.bytes);
    moving_[i] += seconds;
    double through = begin + seconds;
    if (letter.bytes > kSmall) through = free_[i] = std::max(free_[i], begin) + seconds;
    end = std::max(end, through);
    if (spans_)
      made_.spans.push_back(
          {through - seconds, through, way.from, way.to, letter.operation, step, link});
  }
  return end + route.latency;
}

void Replay::send(int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const Event& event = (*events(number, rank.part))[rank.event++];
  const Letter& letter = recording_.letters[event.id];
  const Way& way = recording_.ways[static_cast<size_t>(letter.way)];
  if (std::exchange(rank.call, calls_[event.id]) != calls_[event.id])
    rank.host += cluster_.software.host_message_seconds;
  if (!rank.connected) {
    rank.connected = true;
    rank.host = std::max(rank.host, rank.device) +
                cluster_.software.connect_seconds * double(ranks_.size());
  }
  work_on(rank, letter);
  const double begin = std::max(rank.device, rank.host);
  const double there = transmit(letter, way, begin, rank.part - 1);
  if (spans_)
    made_.spans.push_back({begin, there, way.from, way.to, letter.operation, rank.part - 1});
  const auto w = static_cast<size_t>(letter.way);
  arrived_[w].push_back(there);
  if (const int waiting = std::exchange(parked_[w], -1); waiting >= 0) advance(waiting);
  advance(number);
}

// Returns whether the message of a wait was sent; if so, the rank waits until the arrival.
bool Replay::arrive(int number, const Event& event) {
  const uint64_t order = expected_[event.id] - 1 - event.lag;
  const auto& there = arrived_[event.id];
  if (order >= there.size()) {
    parked_[event.id] = number;
    return false;
  }
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const double arrival = there[order];
  show(number, "compute", rank.since, rank.device);
  if (arrival > rank.device) {
    show(number, "wait", rank.device, arrival);
    rank.wait += arrival - rank.device;
    rank.device = arrival;
  }
  rank.since = rank.device;
  return true;
}

// Runs a rank up to its next send, because sends are in order of time, or to a wait for an unsent
// message.
void Replay::advance(int number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  while (const std::vector<Event>* const list = events(number, rank.part)) {
    for (; rank.event < list->size(); ++rank.event) {
      const Event& event = (*list)[rank.event];
      if (event.kind == Event::Kind::send)
        return turns_.push({std::max(rank.device, rank.host), number});
      if (event.kind != Event::Kind::expect) rank.call = -1;
      if (event.kind == Event::Kind::op)
        compute(rank, costs_[event.id]);
      else if (event.kind == Event::Kind::expect)
        ++expected_[event.id];
      else if (!arrive(number, event))
        return;
    }
    if (rank.part == 0) made_.prepare = std::max(made_.prepare, rank.device);
    show(number, "compute", rank.since, rank.device);
    rank.since = rank.device;
    ++rank.part;
    rank.event = 0;
    if (rank.part == last_part_) return stopped_.push_back(number);
  }
  rank.ended = true;
}

// A turn ends with ranks at their next sends, so it may be the last one before a copy.
void Replay::take_turns() {
  while (!turns_.empty() && stopped_.empty()) {
    const int number = turns_.top().second;
    turns_.pop();
    if (std::exchange(ranks_[static_cast<size_t>(number)].begun, true))
      send(number);
    else
      advance(number);
  }
}

void Replay::run_to(int part) {
  last_part_ = part;
  take_turns();
  last_part_ = -1;
}

Simulation Replay::run(int steps) {
  steps_ = steps;
  for (const int number : std::exchange(stopped_, {})) advance(number);
  take_turns();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    require(rank.ended, ErrorCode::rank, "rank {} of a recording waits for what nobody sends", r);
    made_.rank_seconds.push_back(rank.device);
    made_.compute_seconds.push_back(rank.compute);
    made_.wait_seconds.push_back(rank.wait);
    made_.seconds = std::max(made_.seconds, rank.device);
  }
  for (int link = 0; link < routes_.links(); ++link) {
    made_.link_bytes[routes_.name(link)] = bytes_[static_cast<size_t>(link)];
    made_.link_seconds[routes_.name(link)] = moving_[static_cast<size_t>(link)];
    if (spans_) made_.links.push_back(routes_.name(link));
  }
  return std::move(made_);
}

double further(double first, double second, double times) {
  return second + (second - first) * times;
}

// Extrapolates `second` by `times` the difference of two replays.
void extend(const Simulation& first, Simulation& second, double times) {
  second.seconds = further(first.seconds, second.seconds, times);
  for (size_t r = 0; r < second.rank_seconds.size(); ++r) {
    const auto more = [&](const std::vector<double>& a, std::vector<double>& b) {
      b[r] = further(a[r], b[r], times);
    };
    more(first.rank_seconds, second.rank_seconds);
    more(first.compute_seconds, second.compute_seconds);
    more(first.wait_seconds, second.wait_seconds);
  }
  for (auto& [link, bytes] : second.link_bytes)
    bytes = further(first.link_bytes.at(link), bytes, times);
  for (auto& [link, seconds] : second.link_seconds)
    seconds = further(first.link_seconds.at(link), seconds, times);
}

}  // namespace

double Simulation::waiting_share() const {
  double waits = 0, all = 0;
  for (size_t r = 0; r < wait_seconds.size(); ++r) {
    waits += wait_seconds[r] + (seconds - rank_seconds[r]);
    all += seconds;
  }
  return all > 0 ? waits / all : 0;
}

Simulation simulate(const Recording& recording, const Cluster& cluster, bool spans) {
  const int kept = recording.recorded_steps(), period = std::max(recording.period, 1);
  const int more = (recording.steps - kept) / period;  // periods without a recording
  if (spans || more <= 2) {
    const int steps = kept > 0 ? recording.steps : 0;
    return Replay(recording, cluster, steps, spans).run(steps);
  }
  // Replays of `kept` and of more steps are the same up to the last steps.
  Replay shorter(recording, cluster, kept, false);
  shorter.run_to(recording.steady() ? kept + 1 : kept);
  Replay longer = shorter;
  const Simulation first = shorter.run(kept);
  Simulation second = longer.run(kept + period);
  extend(first, second, more - 1);
  return second;
}

}  // namespace tessera::planner
