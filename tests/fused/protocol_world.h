#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "fused/coordinator.h"

namespace tessera::fused {

// A deliberate fault in a condition of the protocol.
enum class Fault {
  none,
  rows_not_waited_for,     // a wait
  results_not_waited_for,  // a wait
  counts_not_waited_for,   // a wait
  word_before_rows,        // a release: of a transfer
  bell_before_work,        // a release: of a task's end
  any_epoch_of_flags,      // an epoch check
  any_epoch_of_counts,     // an epoch check
  one_set_of_counts,       // an epoch check: a peer ahead overwrites unread counts
  bell_not_cleared,        // a flag clear
  bell_cleared_at_once,    // a flag clear
  any_tile_of_flags,       // a check for the arrived tile at a shared place
};

struct Scenario {
  int ranks = 2, processors = 2, epochs = 2, experts = 1;
  int64_t tile = 1, capacity = 1;  // capacity 0: dropless
  int64_t window = 0;              // tiles of a run without capacity; 0: all
  int up_parts = 1, down_parts = 1, slots = 1;
  bool shared = false;
  bool later = false;    // epochs begin by begin() alone
  bool combines = true;  // false: rows only
  // [epoch][from][to * experts + expert]
  std::vector<std::vector<std::vector<int64_t>>> rows{};
};

// Ranks, their processors and the wire between them, in a single block of memory, so a state can be
// saved, compared and restored. Rows are numbers with their identity: each reader checks for the
// expected row, at the beginning and at the end.
class ProtocolWorld {
 public:
  ProtocolWorld(Scenario scenario, Fault fault) : is_(std::move(scenario)), fault_(fault) {
    for (int r = 0; r < is_.ranks; ++r) shapes_.push_back(shape(r));
    Carver measure(nullptr);
    carve(measure);
    bytes_.resize(size_t(measure.bytes()) + 64);
    void* begin = bytes_.data();
    size_t room = bytes_.size();
    begin_ = static_cast<std::byte*>(std::align(64, bytes_.size() - 64, begin, room));
    Carver carver(begin_);
    carve(carver);
    size_ = size_t(carver.bytes());
    for (int r = 0; r < is_.ranks; ++r) {
      Rank& one = ranks_[size_t(r)];
      new (one.coordinator) Coordinator(shapes_[size_t(r)], one.buffer, one.memory);
      if (!is_.later) next_epoch(r);
    }
  }
  ProtocolWorld(const ProtocolWorld&) = delete;

  size_t size() const { return size_; }
  void save(std::byte* to) const { std::memcpy(to, begin_, size_); }
  void restore(const std::byte* from) { std::memcpy(begin_, from, size_); }
  const std::string& failure() const { return failure_; }
  int64_t payload() const { return payload_; }

  // All possible next actions, by number.
  int actions() const { return is_.ranks * per_rank() + is_.ranks * words_; }
  // Performs an action; false: impossible now, and the state is unchanged.
  bool act(int action) {
    const int flights = action - is_.ranks * per_rank();
    if (flights >= 0) return deliver(flights / words_, flights % words_);
    const int r = action / per_rank(), i = action % per_rank();
    Coordinator& coordinator = *ranks_[size_t(r)].coordinator;
    if (i < is_.processors) return work(r, i);
    if (i == is_.processors)
      return !is_.later && coordinator.done() && int(coordinator.epoch()) < is_.epochs &&
             next_epoch(r);
    const int64_t before = coordinator.scheduler().bound();
    Words words{this, r};
    const int item = i - is_.processors - 1;  // or all of them, as the operator's threads look
    if (!(item == coordinator.items() ? coordinator.poll(words) : coordinator.look(item, words)))
      return false;
    check(coordinator.scheduler().bound() <= before, "the bound grew");
    check(coordinator.scheduler().finished() <= coordinator.scheduler().bound(), "past the bound");
    for (const Rank& other : ranks_)
      check(coordinator.epoch() <= other.coordinator->epoch() + 1, "more than one epoch ahead");
    return true;
  }
  // The rank of an action; -1: the wire.
  int rank_of(int action) const {
    return action < is_.ranks * per_rank() ? action / per_rank() : -1;
  }
  void begin(int r) { next_epoch(r); }
  const Coordinator& coordinator(int r) const { return *ranks_[size_t(r)].coordinator; }
  // No processor is within a task.
  bool idle(int r) const {
    for (int p = 0; p < is_.processors; ++p)
      if (ranks_[size_t(r)].hands[p].stage != 0) return false;
    return true;
  }
  // All results of the rank's tokens are those of its epoch.
  bool has_results(int r) const {
    bool all = true;
    for (int to = 0; to < is_.ranks; ++to)
      each_tile(counts(r, r, to), [&](Task tile) {
        tile.peer = to;
        for (int64_t i = 0; i < tile.rows; ++i)
          all = all && *made(r, to, tile, i) == name(epoch(r), Round::combine, r, to, tile, i);
      });
    return all;
  }
  bool over() const {
    for (const Rank& one : ranks_)
      if (!one.coordinator->done() || int(one.coordinator->epoch()) < is_.epochs) return false;
    for (const Flight* f = flights_; f < flights_ + is_.ranks * words_; ++f)
      if (f->stage) return false;
    return true;
  }
  // Rows that cross between ranks in all epochs, both ways.
  int64_t crossing() const {
    int64_t sum = 0;
    for (const auto& epoch : is_.rows)
      for (int from = 0; from < is_.ranks; ++from)
        for (int i = 0; i < is_.ranks * is_.experts; ++i)
          if (i / is_.experts != from) sum += epoch[size_t(from)][size_t(i)];
    return 2 * sum;
  }

 private:
  struct Hand {
    Task task;
    int32_t stage = 0;  // 1: at work; 2: the bell is cleared too early
  };
  struct Flight {
    Transfer transfer;
    int32_t from = 0, stage = 0;  // 1: nothing has arrived; 2: a part has arrived
  };
  struct Rank {
    Coordinator* coordinator = nullptr;
    std::byte *buffer = nullptr, *memory = nullptr;
    Hand* hands = nullptr;
    uint64_t *inner = nullptr, *made = nullptr;  // made: results of my tokens, by rank
    int64_t* times = nullptr;                    // runs of the gate and of the sum
  };
  // The words of a rank in its coordinator's view.
  struct Words {
    ProtocolWorld* world;
    int rank;
    uint64_t load(const uint64_t* word) const { return world->load(rank, word); }
    static void store(uint64_t* word, uint64_t value) { *word = value; }
  };

  Shape shape(int rank) const {
    const RowTiles tiles{is_.tile};
    int64_t most = 0;
    for (const auto& epoch : is_.rows)
      for (const auto& from : epoch)
        for (int to = 0; to < is_.ranks; ++to) {
          int64_t sum = 0;
          for (int e = 0; e < is_.experts; ++e) sum += from[size_t(to * is_.experts + e)];
          most = std::max(most, sum);
        }
    const Layout layout =
        is_.capacity > 0 ? Layout::fixed(is_.ranks, is_.experts, is_.capacity, 8, tiles)
                         : Layout::dropless(is_.ranks, is_.experts, most, 8, tiles, is_.window);
    return {layout, rank, is_.processors, is_.up_parts, is_.down_parts, is_.slots, 1, is_.experts};
  }
  void carve(Carver& memory) {
    const Layout& layout = shapes_[0].layout;
    words_ = 2 * is_.ranks * is_.experts + int(layout.flags());
    ranks_.resize(size_t(is_.ranks));
    for (int r = 0; r < is_.ranks; ++r) {
      const Shape& shape = shapes_[size_t(r)];
      Rank& one = ranks_[size_t(r)];
      one.coordinator = memory.take<Coordinator>(1);
      memory.take<Doorbell>(0);
      one.memory = memory.take<std::byte>(Coordinator::bytes(shape));
      memory.take<Doorbell>(0);
      one.buffer = memory.take<std::byte>(layout.bytes());
      one.hands = memory.take<Hand>(is_.processors);
      one.inner = memory.take<uint64_t>(is_.slots * is_.up_parts);
      one.made = memory.take<uint64_t>(is_.ranks * layout.most * is_.tile);
      one.times = memory.take<int64_t>(2);
    }
    flights_ = memory.take<Flight>(is_.ranks * words_);
  }
  int per_rank() const { return is_.processors + 2 + ranks_[0].coordinator->items(); }
  const Layout& layout() const { return shapes_[0].layout; }
  uint64_t epoch(int r) const { return ranks_[size_t(r)].coordinator->epoch(); }
  const int64_t* counts(int r, int from, int to) const {
    return is_.rows[epoch(r) - 1][size_t(from)].data() + to * is_.experts;
  }
  void check(bool holds, const char* what) {
    if (!holds && failure_.empty()) failure_ = what;
  }

  // The number of a word in a buffer: counts first, then flags.
  int word_number(int64_t offset) const {
    if (offset < layout().count_region()) return int(offset / 8);
    const int64_t flags = layout().count_region() + whole_lines(layout().row_region());
    return 2 * is_.ranks * is_.experts + int((offset - flags) / 8);
  }
  uint64_t load(int r, const uint64_t* word) const {
    const Rank& one = ranks_[size_t(r)];
    const int64_t at = reinterpret_cast<const std::byte*>(word) - one.buffer;
    if (at < 0 || at >= layout().bytes()) return *word;  // a doorbell
    const uint64_t now = epoch(r);
    if (at < layout().count_region()) {
      if (fault_ == Fault::counts_not_waited_for) return now << 32 | (*word & 0xffffffff);
      if (fault_ == Fault::any_epoch_of_counts && *word) return now << 32 | (*word & 0xffffffff);
      if (fault_ == Fault::one_set_of_counts)
        return *reinterpret_cast<const uint64_t*>(one.buffer + at % (8 * is_.ranks * is_.experts));
      return *word;
    }
    const uint64_t epoch_now = now << 32;
    if (fault_ == Fault::any_epoch_of_flags && *word) return epoch_now | (*word & 0xffffffff);
    if (fault_ == Fault::any_tile_of_flags && *word >> 32 == now) return awaited(r, at);
    const int64_t flag = word_number(at) - 2 * is_.ranks * is_.experts;
    const bool results = flag / layout().run_tiles() % 2 == 1;
    if (fault_ == (results ? Fault::results_not_waited_for : Fault::rows_not_waited_for))
      return epoch_now | 1;
    return *word;
  }
  // The value expected at a flag by a rank's coordinator.
  uint64_t awaited(int r, int64_t at) const {
    const Arrival one = ranks_[size_t(r)].coordinator->missing();
    const uint64_t lap = one.word == at ? uint64_t(one.tile.index / layout().run_tiles()) + 1 : 0;
    return epoch(r) << 32 | lap;
  }

  bool next_epoch(int r) {
    Words words{this, r};
    ranks_[size_t(r)].coordinator->begin(is_.combines ? 1 : 0, is_.shared, words);
    return true;
  }

  // The identity of a row: its owner, the expert and the expert's rank, the direction, the epoch.
  static uint64_t name(uint64_t epoch, Round round, int from, int to, const Task& t, int64_t row) {
    uint64_t tag = epoch * 2 + uint64_t(round);
    for (const int64_t part :
         {int64_t(from), int64_t(to), int64_t(t.expert), int64_t(t.index), row})
      tag = tag * 32 + uint64_t(part);
    return tag + 1;
  }
  uint64_t* row(int r, const Task& task, Side side, const int64_t* counts, int64_t i) const {
    const Dispatcher where(layout(), r);
    return reinterpret_cast<uint64_t*>(ranks_[size_t(r)].buffer +
                                       where.offset(task, side, counts)) +
           i;
  }

  bool work(int r, int p) {
    Rank& one = ranks_[size_t(r)];
    Hand& hand = one.hands[p];
    const Processor processor = one.coordinator->processor(p);
    Words words{this, r};
    if (hand.stage == 0) {
      if (!processor.take(hand.task, words)) return false;
      hand.stage = 1;
      inputs_are_right(r, hand.task);
      if (fault_ == Fault::bell_cleared_at_once) processor.done(words), hand.stage = 2;
    } else if (hand.stage == 1 && fault_ == Fault::bell_before_work) {
      processor.done(words);
      hand.stage = 2;
    } else {
      inputs_are_right(r, hand.task);
      outputs(r, hand.task);
      if (hand.stage == 1 && fault_ != Fault::bell_not_cleared) processor.done(words);
      hand = {};
    }
    return true;
  }
  void inputs_are_right(int r, const Task& t) {
    Rank& one = ranks_[size_t(r)];
    const uint64_t now = epoch(r);
    const int64_t* rows = one.coordinator->counts(t);
    if (t.kind == TaskKind::up)
      each_member(r, t, [&](const Task& tile) {
        for (int64_t i = 0; i < tile.rows && tile.peer != r; ++i)
          check(*row(r, tile, Side::incoming, one.coordinator->counts(tile), i) ==
                    name(now, Round::dispatch, tile.peer, r, tile, i),
                "a row to compute is not the one that was sent");
      });
    if (t.kind == TaskKind::down)
      for (int part = 0; part < (group(r, t).count > 1 ? 1 : is_.up_parts); ++part)
        check(one.inner[t.slot * is_.up_parts + part] == name(now, {}, t.peer, r, t, part),
              "inner activations are not those of the tile");
    if (t.kind == TaskKind::give_back)
      for (int64_t i = 0; i < t.rows; ++i)
        check(*row(r, t, Side::outgoing, rows, i) == name(now, Round::combine, t.peer, r, t, i),
              "a result that leaves is not the tile's");
    if (t.kind == TaskKind::collect)
      for (int64_t i = 0; i < t.rows; ++i)
        check(*row(r, t, Side::incoming, rows, i) == name(now, Round::combine, r, t.peer, t, i),
              "a result that comes back is not the token's");
    if (t.kind != TaskKind::combine) return;
    for (int to = 0; to < is_.ranks; ++to)
      each_tile(counts(r, r, to), [&](Task tile) {
        tile.peer = to;
        for (int64_t i = 0; i < tile.rows; ++i)
          check(*made(r, to, tile, i) == name(now, Round::combine, r, to, tile, i),
                "a result that is summed is not the token's");
      });
  }
  // The place of a result of my token, computed by another rank.
  uint64_t* made(int r, int by, const Task& tile, int64_t i) const {
    const int64_t first = layout().first_row(counts(r, r, by), tile.expert);
    return ranks_[size_t(r)].made + (by * layout().most * is_.tile) + first +
           tile.index * is_.tile + i;
  }
  // The tiles of a product.
  const TileGroup& group(int r, const Task& t) const {
    return ranks_[size_t(r)].coordinator->scheduler().group(t.slot);
  }
  template <class Seen>
  void each_member(int r, const Task& t, Seen seen) const {
    for (int i = 0; i < group(r, t).count; ++i) {
      Task tile = group(r, t).tiles[i];
      tile.kind = t.kind;
      seen(tile);
    }
  }
  template <class Seen>
  void each_tile(const int64_t* counts, Seen seen) const {
    for (int e = 0; e < is_.experts; ++e)
      for (int64_t i = 0; i < layout().tiles.count(counts[e]); ++i)
        seen(Task{TaskKind::none, 0, e, int32_t(i), int32_t(layout().tiles.rows_of(i, counts[e]))});
  }
  void outputs(int r, const Task& t) {
    Rank& one = ranks_[size_t(r)];
    const uint64_t now = epoch(r);
    const int64_t* rows = one.coordinator->counts(t);
    if (t.kind == TaskKind::gate) route(r);
    if (t.kind == TaskKind::dispatch)
      for (int64_t i = 0; i < t.rows; ++i)
        *row(r, t, Side::outgoing, rows, i) = name(now, Round::dispatch, r, t.peer, t, i);
    if (t.kind == TaskKind::up)
      one.inner[t.slot * is_.up_parts + t.part] = name(now, {}, t.peer, r, t, t.part);
    if (t.kind == TaskKind::down)
      each_member(r, t, [&](const Task& tile) {
        const int parts = group(r, t).count > 1 ? 1 : is_.down_parts;
        for (int64_t i = tile.rows * t.part / parts; i < tile.rows * (t.part + 1) / parts; ++i)
          (tile.peer == r ? *made(r, r, tile, i)
                          : *row(r, tile, Side::outgoing, one.coordinator->counts(tile), i)) =
              name(now, Round::combine, tile.peer, r, tile, i);
      });
    if (t.kind == TaskKind::collect)
      for (int64_t i = 0; i < t.rows; ++i)
        *made(r, t.peer, t, i) = *row(r, t, Side::incoming, rows, i);
    if (t.kind == TaskKind::down && is_.down_parts == 1)  // equal states are equal bytes
      std::fill_n(one.inner + t.slot * is_.up_parts, is_.up_parts, 0);
    if (t.kind == TaskKind::gate || t.kind == TaskKind::combine)
      check(++one.times[t.kind == TaskKind::combine] == int64_t(now), "a task is done twice");
    if (t.kind == TaskKind::dispatch || t.kind == TaskKind::give_back)
      send(r, Dispatcher(layout(), r).tile(t, rows, now));
  }
  void route(int r) {
    const Routed& routed = ranks_[size_t(r)].coordinator->routed();
    const Dispatcher dispatcher(layout(), r);
    for (int to = 0; to < is_.ranks; ++to)
      for (int e = 0; e < is_.experts; ++e) {
        routed.to(layout(), to)[e] = counts(r, r, to)[e];
        for (int64_t i = 0; !is_.combines && i < layout().tiles.count(counts(r, r, to)[e]); ++i)
          routed.wait(layout(), {TaskKind::dispatch, to, e, int32_t(i)}) = {0, -1};
        if (to != r) send(r, dispatcher.count(to, e, counts(r, r, to)[e], epoch(r)));
      }
  }

  void send(int from, Transfer transfer) {
    if (fault_ == Fault::one_set_of_counts && transfer.word < layout().count_region())
      transfer.word %= 8 * is_.ranks * is_.experts;
    Flight& flight = flights_[transfer.to * words_ + word_number(transfer.word)];
    check(fault_ == Fault::one_set_of_counts || flight.stage == 0, "a word is sent twice at once");
    flight = {transfer, from, 1};
  }
  // Rows are read when they travel, in any order and at any time after their transfer began.
  bool deliver(int to, int word) {
    Flight& flight = flights_[to * words_ + word];
    if (flight.stage == 0) return false;
    const Transfer& t = flight.transfer;
    std::byte* buffer = ranks_[size_t(to)].buffer;
    const bool rows_now = (flight.stage == 1) != (fault_ == Fault::word_before_rows);
    if (t.bytes > 0 && rows_now) {
      std::memcpy(buffer + t.at, ranks_[size_t(flight.from)].buffer + t.from, size_t(t.bytes));
      payload_ += t.bytes / 8;
    }
    if (t.bytes == 0 || !rows_now) std::memcpy(buffer + t.word, &t.value, 8);
    flight.stage = t.bytes == 0 || flight.stage == 2 ? 0 : 2;
    if (flight.stage == 0) flight = {};
    return true;
  }

  const Scenario is_;
  const Fault fault_;
  std::vector<Shape> shapes_;
  std::vector<std::byte> bytes_;
  std::byte* begin_ = nullptr;
  size_t size_ = 0;
  std::vector<Rank> ranks_;
  Flight* flights_ = nullptr;
  int words_ = 0;
  int64_t payload_ = 0;
  std::string failure_;
};

}  // namespace tessera::fused
