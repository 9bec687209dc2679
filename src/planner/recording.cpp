#include "planner/recording.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/fail.h"

namespace tessera::planner {
namespace {

using base::Json;

using WayKey = std::tuple<int, int, uint64_t>;  // from, to, channel
using LetterKey = std::tuple<WayKey, int64_t, std::string, int, int64_t>;
using OpKey = std::tuple<std::string, double, double, int64_t, int64_t, int64_t, int>;

OpKey key_of(const Op& op) {
  return {op.kind,
          op.flops,
          op.bytes,
          op.size.rows,
          op.size.columns,
          op.size.depth,
          static_cast<int>(op.size.dtype)};
}

// Numbers distinct keys in the order of their first use.
template <class Key>
class Numbers {
 public:
  uint32_t of(const Key& key) {
    const auto [at, first] = ids_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (first) keys_.push_back(key);
    return at->second;
  }
  const std::vector<Key>& keys() const { return keys_; }

 private:
  std::map<Key, uint32_t> ids_;
  std::vector<Key> keys_;
};

}  // namespace

bool Op::operator==(const Op& other) const { return key_of(*this) == key_of(other); }

/// A rank numbers its events alone, so numbers do not depend on the timing of other ranks.
class Recorder::Rank final : public tensor::RunWatcher {
 public:
  Rank(Recorder& all, int number) : all_(all), number_(number) {}

  RunWatcher* of_rank(int rank) override {
    return rank < static_cast<int>(all_.ranks_.size())
               ? all_.ranks_[static_cast<size_t>(rank)].get()
               : nullptr;
  }
  void op(const char* kind, double flops, double bytes, const tensor::OpSize& size) override {
    if (!into_) return;
    // Blocks repeat, so nearly all ops are known from the previous block.
    const Seen seen{kind, flops, bytes, size.rows, size.columns, size.depth, size.dtype};
    const auto [at, first] = seen_.try_emplace(seen, 0);
    if (first) at->second = ops_.of(key_of({kind, flops, bytes, size}));
    into_->push_back({Event::Kind::op, at->second, 0});
  }
  void sends(int peer, uint64_t channel, int64_t bytes, const char* operation, int site,
             int64_t count) override {
    if (!into_) return;
    const auto [at, first] =
        sent_.try_emplace(Sent{channel, bytes, count, operation, peer, site}, 0);
    if (first)
      at->second = letters_.of({WayKey{number_, peer, channel}, bytes, operation, site, count});
    into_->push_back({Event::Kind::send, at->second, 0});
  }
  void expects(int peer, uint64_t channel, uint64_t order) override {
    Incoming& way = incoming(peer, channel);
    way.expected = order + 1;
    if (into_) into_->push_back({Event::Kind::expect, way.id, 0});
  }
  void waits(int peer, uint64_t channel, uint64_t order) override {
    const Incoming& way = incoming(peer, channel);
    if (into_)
      into_->push_back(
          {Event::Kind::wait, way.id, static_cast<uint32_t>(way.expected - order - 1)});
  }
  void part(const char* name, int) override {
    const std::string_view part(name);
    if (part == "prepare" || part == "decode") into_ = &made_.prepare;
    if (part == "step") into_ = &made_.steps.emplace_back();
    if (part == "gather") into_ = &made_.gather;
    if (part.empty()) into_ = nullptr;
  }

 private:
  friend class Recorder;
  struct Incoming {
    uint32_t id = 0;
    uint64_t expected = 0;
  };
  struct Seen {
    const char* kind;
    double flops, bytes;
    int64_t rows, columns, depth;
    tensor::DType dtype;
    bool operator==(const Seen&) const = default;
  };
  struct Sent {
    uint64_t channel;
    int64_t bytes, count;
    const char* operation;
    int peer, site;
    bool operator==(const Sent&) const = default;
  };
  struct Hash {
    static size_t mix(size_t a, size_t b) { return (a ^ b) * 1099511628211ull; }
    size_t operator()(const Sent& s) const {
      const auto peer = static_cast<size_t>(s.peer), site = static_cast<size_t>(s.site);
      return mix(
          mix(mix(s.channel, static_cast<size_t>(s.bytes)), std::hash<const void*>()(s.operation)),
          (peer * 4099 + site) * 31 + static_cast<size_t>(s.count));
    }
    size_t operator()(const std::pair<int, uint64_t>& way) const {
      return mix(way.second, static_cast<size_t>(way.first));
    }
    size_t operator()(const Seen& s) const {
      return mix(mix(mix(std::hash<const void*>()(s.kind), std::hash<double>()(s.flops)),
                     std::hash<double>()(s.bytes)),
                 static_cast<size_t>(s.rows * 31 + s.columns * 7 + s.depth));
    }
  };
  Incoming& incoming(int peer, uint64_t channel) {
    const auto [at, first] = incoming_.try_emplace({peer, channel});
    if (first) at->second.id = ways_.of({peer, number_, channel});
    return at->second;
  }

  Recorder& all_;
  int number_;
  std::vector<Event>* into_ = nullptr;  // null: this part of the run is not recorded
  RankRecording made_;
  Numbers<OpKey> ops_;
  Numbers<WayKey> ways_;
  Numbers<LetterKey> letters_;
  std::unordered_map<Seen, uint32_t, Hash> seen_;
  std::unordered_map<Sent, uint32_t, Hash> sent_;
  std::unordered_map<std::pair<int, uint64_t>, Incoming, Hash> incoming_;
};

Recorder::Recorder(int ranks) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
}

Recorder::~Recorder() = default;

tensor::RunWatcher* Recorder::root() { return ranks_.front().get(); }

namespace {

// Replaces a rank's numbers by numbers of the whole recording.
void renumber(std::vector<Event>& events, const std::vector<uint32_t>& ops,
              const std::vector<uint32_t>& ways, const std::vector<uint32_t>& letters) {
  for (Event& event : events) {
    if (event.kind == Event::Kind::op)
      event.id = ops[event.id];
    else if (event.kind == Event::Kind::send)
      event.id = letters[event.id];
    else
      event.id = ways[event.id];
  }
}

}  // namespace

Recording Recorder::take(int steps, int period) {
  Recording made;
  made.steps = steps;
  made.period = period;
  Numbers<OpKey> ops;
  Numbers<WayKey> ways;
  Numbers<LetterKey> letters;
  for (const auto& rank : ranks_) {
    std::vector<uint32_t> op_ids, way_ids, letter_ids;
    for (const OpKey& key : rank->ops_.keys()) op_ids.push_back(ops.of(key));
    for (const WayKey& key : rank->ways_.keys()) way_ids.push_back(ways.of(key));
    for (const LetterKey& key : rank->letters_.keys()) {
      ways.of(std::get<0>(key));
      letter_ids.push_back(letters.of(key));
    }
    RankRecording mine = std::move(rank->made_);
    renumber(mine.prepare, op_ids, way_ids, letter_ids);
    for (auto& step : mine.steps) renumber(step, op_ids, way_ids, letter_ids);
    renumber(mine.gather, op_ids, way_ids, letter_ids);
    made.ranks.push_back(std::move(mine));
    rank->made_ = {};
    rank->into_ = nullptr;
  }
  for (const auto& [kind, flops, bytes, rows, columns, depth, dtype] : ops.keys())
    made.ops.push_back({kind, flops, bytes, {rows, columns, depth, tensor::DType(dtype)}});
  for (const auto& [way, bytes, operation, site, count] : letters.keys())
    made.letters.push_back({static_cast<int>(ways.of(way)), bytes, operation, site, count});
  for (const auto& [from, to, channel] : ways.keys()) made.ways.push_back({from, to, channel});
  return made;
}

int Recording::recorded_steps() const {
  return ranks.empty() ? 0 : static_cast<int>(ranks[0].steps.size());
}

bool Recording::steady() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankRecording& rank) {
    return std::all_of(rank.steps.begin(), rank.steps.end(),
                       [&](const auto& step) { return step == rank.steps.front(); });
  });
}

void Recording::repeat(int kept) {
  for (RankRecording& rank : ranks) {
    const std::vector<Event> second = rank.steps.at(1);
    const size_t more = static_cast<size_t>(kept) - rank.steps.size();
    rank.steps.insert(rank.steps.end() - 1, more, second);
  }
}

// The first ones stand for themselves, the last one for the last; those between repeat.
int Recording::recorded(int i, int of) const {
  const int kept = recorded_steps();
  if (of <= kept || i < kept - 1) return std::min(i, kept - 1);
  if (i == of - 1) return kept - 1;
  return kept - 1 - period + (i - (kept - 1)) % period;
}

namespace {

template <class Count>
double total(const Recording& recording, const Count& count) {
  std::vector<double> times(static_cast<size_t>(recording.recorded_steps()));
  for (int i = 0; i < recording.steps; ++i)
    times[static_cast<size_t>(recording.recorded(i, recording.steps))] += 1;
  double sum = 0;
  for (const RankRecording& rank : recording.ranks) {
    const auto add = [&](const std::vector<Event>& events, double factor) {
      for (const Event& event : events)
        if (event.kind == Event::Kind::send) sum += factor * count(recording.letters[event.id]);
    };
    add(rank.prepare, 1);
    for (size_t s = 0; s < rank.steps.size(); ++s) add(rank.steps[s], times[s]);
    add(rank.gather, 1);
  }
  return sum;
}

}  // namespace

double Recording::sent_bytes() const {
  return total(*this, [](const Letter& letter) { return double(letter.bytes); });
}

double Recording::sent_messages() const {
  return total(*this, [](const Letter& letter) { return double(letter.count); });
}

namespace {

Json events_json(const std::vector<Event>& events) {
  constexpr const char* kNames[] = {"op", "send", "expect", "wait"};
  Json list = Json::array();
  for (const Event& event : events) {
    Json one = {kNames[static_cast<size_t>(event.kind)], event.id};
    if (event.kind == Event::Kind::wait) one.push_back(event.lag);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

Json to_json(const Recording& recording) {
  Json ops = Json::array(), ways = Json::array(), letters = Json::array(), ranks = Json::array();
  for (const Op& op : recording.ops)
    ops.push_back({{"kind", op.kind},
                   {"shape", {op.size.rows, op.size.columns, op.size.depth}},
                   {"dtype", std::string(tensor::name_of(op.size.dtype))},
                   {"flops", op.flops},
                   {"bytes", op.bytes}});
  for (const Way& way : recording.ways)
    ways.push_back({{"from", way.from}, {"to", way.to}, {"channel", way.channel}});
  for (const Letter& letter : recording.letters)
    letters.push_back({{"way", letter.way},
                       {"bytes", letter.bytes},
                       {"operation", letter.operation},
                       {"layer", letter.site},
                       {"messages", letter.count}});
  for (const RankRecording& rank : recording.ranks) {
    Json steps = Json::array();
    for (const auto& step : rank.steps) steps.push_back(events_json(step));
    ranks.push_back({{"prepare", events_json(rank.prepare)},
                     {"steps", std::move(steps)},
                     {"gather", events_json(rank.gather)}});
  }
  return {{"steps", recording.steps},       {"period", recording.period},
          {"ops", std::move(ops)},          {"ways", std::move(ways)},
          {"messages", std::move(letters)}, {"ranks", std::move(ranks)}};
}

}  // namespace tessera::planner
