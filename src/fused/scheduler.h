#pragma once

#include "fused/queue.h"

namespace tessera::fused {

/// The order of a rank's work in an epoch: tasks, their inputs, and their processors. Computes
/// nothing and has a single owner; others see the doorbells only.
class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Shape& shape, const Routed& routed, Carver& memory)
      : shape_(shape),
        routed_(routed),
        bells_(memory.take<Doorbell>(shape.processors)),
        busy_(memory.take<int32_t>(shape.processors)),
        left_(memory.take<int32_t>(shape.slots)),
        groups_(memory.take<TileGroup>(shape.slots)),
        missing_(memory.take<int32_t>(shape.blocks)),
        ready_(memory, most_ready(shape)),
        products_(memory, int64_t{shape.slots} * most_parts(shape)),
        later_(memory, shape.blocks),
        arrived_(memory, int64_t{shape.layout.ranks} * shape.layout.run_tiles() + 1),
        mine_(memory, most(shape) + 1) {}

  /// `shared`: the layer has a shared expert.
  TESSERA_ANYWHERE void begin(int blocks, bool shared) {
    const int64_t peers = shape_.layout.ranks - 1;
    finished_ = 0;
    bound_ = 1 + int64_t{blocks} * (shared ? 2 : 1) + most(shape_) * (2 * peers + parts()) +
             peers * most(shape_) * (parts() + 1);
    unheard_ = static_cast<int32_t>(peers);
    blocks_ = blocks;
    gated_ = leaving_ = open_ = 0;
    ready_.push({TaskKind::gate});
    for (int32_t b = 0; b < blocks; ++b) {
      missing_[b] = shared ? 2 : 1;  // the gate, too
      if (shared) later_.push({.kind = TaskKind::shared, .index = b});
    }
  }
  /// A peer announced its number of tiles.
  TESSERA_ANYWHERE void heard(int64_t count) {
    bound_ -= (most(shape_) - count) * (parts() + 1);
    open_ += static_cast<int32_t>(count);
    --unheard_;
  }
  /// A tile's rows have arrived.
  TESSERA_ANYWHERE void arrived(const Task& tile) {
    arrived_.push(tile);
    start_tiles();
  }
  /// The results of a tile of own tokens have arrived.
  TESSERA_ANYWHERE void returned(const Task& tile) { ready_.push(tile); }
  /// Gives ready tasks to idle processors: first those that let others go on, then products.
  template <class Words>
  TESSERA_ANYWHERE void hand_out(Words& words) {
    for (int p = 0; p < shape_.processors; ++p) {
      if (busy_[p]) continue;
      TaskQueue& from = !ready_.empty() ? ready_ : !products_.empty() ? products_ : later_;
      if (from.empty()) return;
      busy_[p] = 1;
      bells_[p].task = from.pop();
      words.store(&bells_[p].word, 1);
    }
  }
  /// Looks for a finished task of a processor.
  template <class Words>
  TESSERA_ANYWHERE bool look(int processor, Task& task, Words& words) {
    if (!busy_[processor] || words.load(&bells_[processor].word) != 0) return false;
    busy_[processor] = 0;
    task = bells_[processor].task;
    bells_[processor].task = {};
    follow(task);
    return true;
  }

  /// The known bound of tasks; never grows in an epoch.
  TESSERA_ANYWHERE int64_t bound() const { return bound_; }
  TESSERA_ANYWHERE int64_t finished() const { return finished_; }
  /// All is done, and every peer has begun this epoch: none is more than one behind.
  TESSERA_ANYWHERE bool done() const { return finished_ == bound_ && unheard_ == 0; }
  /// The gate has chosen, and rows with a free place in their run have left.
  TESSERA_ANYWHERE bool departed() const { return gated_ == 1 && leaving_ == 0; }
  /// All ranks' rows for own experts are computed, and results for others have left: only own
  /// results are missing.
  TESSERA_ANYWHERE bool served() const { return gated_ == 1 && unheard_ == 0 && open_ == 0; }
  /// The tiles of a product in work.
  TESSERA_ANYWHERE const TileGroup& group(int slot) const { return groups_[slot]; }
  TESSERA_ANYWHERE Doorbell* bell(int processor) const { return bells_ + processor; }
  /// A processor is idle although a task is ready; never after hand_out().
  TESSERA_ANYWHERE bool idle_while_ready() const {
    if (ready_.empty() && products_.empty() && later_.empty()) return false;
    for (int p = 0; p < shape_.processors; ++p)
      if (!busy_[p]) return true;
    return false;
  }

 private:
  TESSERA_ANYWHERE static int64_t most(const Shape& s) { return s.layout.most; }
  TESSERA_ANYWHERE static int64_t most_ready(const Shape& s) {
    return 1 + int64_t{2} * s.layout.ranks * s.layout.run_tiles() +
           int64_t{s.slots} * TileGroup::kMost + s.blocks;
  }
  TESSERA_ANYWHERE static int most_parts(const Shape& s) {
    return s.up_parts > s.down_parts ? s.up_parts : s.down_parts;
  }
  TESSERA_ANYWHERE int64_t parts() const { return shape_.up_parts + shape_.down_parts; }

  TESSERA_ANYWHERE void release(int block) {
    if (--missing_[block] == 0) ready_.push({.kind = TaskKind::combine, .index = block});
  }
  // The results of an own tile are at their place for the sum.
  TESSERA_ANYWHERE void settle(const Task& tile) {
    const Blocks waits = routed_.wait(shape_.layout, tile);
    for (int b = waits.first; b <= waits.last; ++b) release(b);
  }
  // The next tile for the place of this tile in its run, if any.
  TESSERA_ANYWHERE void send_next(const Task& tile) {
    const Layout& layout = shape_.layout;
    const int64_t number = routed_.number(layout, tile) + layout.run_tiles();
    const int64_t* rows = routed_.to(layout, tile.peer);
    int64_t first = 0;
    for (int e = 0; number < layout.most && e < layout.experts; ++e) {
      const int64_t n = layout.tiles.count(rows[e]), i = number - first;
      if (i < n) {
        const auto left = static_cast<int32_t>(layout.tiles.rows_of(i, rows[e]));
        ++leaving_;
        return ready_.push({TaskKind::dispatch, tile.peer, e, static_cast<int32_t>(i), left});
      }
      first += n;
    }
  }
  // Parts of a slot's product: joined tiles are small, and not split.
  TESSERA_ANYWHERE int parts_of(TaskKind kind, int32_t slot) const {
    if (groups_[slot].count > 1) return 1;
    return kind == TaskKind::up ? shape_.up_parts : shape_.down_parts;
  }
  TESSERA_ANYWHERE void push_parts(Task task, TaskKind kind) {
    left_[task.slot] = parts_of(kind, task.slot);
    task.kind = kind;
    for (task.part = 0; task.part < left_[task.slot]; ++task.part) products_.push(task);
  }
  TESSERA_ANYWHERE void start_tiles() {
    for (int32_t slot = 0; slot < shape_.slots; ++slot) {
      if (left_[slot] > 0) continue;
      TaskQueue& from = arrived_.empty() ? mine_ : arrived_;
      if (from.empty()) return;
      TileGroup& group = groups_[slot];
      Task tile = from.pop(), more;
      group.add(tile);
      const auto room = [&] { return static_cast<int32_t>(shape_.room(group.rows)); };
      while (group.count < TileGroup::kMost &&
             (arrived_.take(tile.expert, room(), more) || mine_.take(tile.expert, room(), more)))
        group.add(more);
      tile.slot = slot;
      tile.rows = group.rows;
      push_parts(tile, TaskKind::up);
    }
  }
  // The results are here, or leave.
  TESSERA_ANYWHERE void end_tiles(int32_t slot) {
    const TileGroup group = groups_[slot];
    groups_[slot] = TileGroup();
    start_tiles();
    for (int i = 0; i < group.count; ++i) {
      Task tile = group.tiles[i];
      tile.kind = TaskKind::give_back;
      if (tile.peer != shape_.rank) {
        ready_.push(tile);
        continue;
      }
      --open_;
      settle(tile);
    }
  }
  // The task's share of the bound.
  TESSERA_ANYWHERE int64_t worth(const Task& task) const {
    if (task.kind != TaskKind::up && task.kind != TaskKind::down) return 1;
    const int64_t tiles = groups_[task.slot].count;
    const int parts = task.kind == TaskKind::up ? shape_.up_parts : shape_.down_parts;
    return tiles > 1 ? tiles * parts : 1;
  }
  // Tasks made possible by a finished task.
  TESSERA_ANYWHERE void follow(const Task& task) {
    finished_ += worth(task);
    if (task.kind == TaskKind::gate) {
      route();
    } else if (task.kind == TaskKind::shared) {
      release(task.index);
    } else if (task.kind == TaskKind::up && --left_[task.slot] == 0) {
      push_parts(task, TaskKind::down);
    } else if (task.kind == TaskKind::down && --left_[task.slot] == 0) {
      end_tiles(task.slot);
    } else if (task.kind == TaskKind::dispatch) {
      --leaving_;
    } else if (task.kind == TaskKind::give_back) {
      --open_;
    } else if (task.kind == TaskKind::collect) {
      settle(task);
      send_next(task);
    }
  }
  // After the gate: rows for others leave first, within their places, then own rows are computed.
  TESSERA_ANYWHERE void route() {
    const Layout& layout = shape_.layout;
    gated_ = 1;
    for (int step = 1; step <= layout.ranks; ++step) {
      const int peer = (shape_.rank + step) % layout.ranks;  // spread over the ranks
      const int64_t* rows = routed_.to(layout, peer);
      int64_t count = 0;
      for (int e = 0; e < layout.experts; ++e) {
        const auto n = static_cast<int32_t>(layout.tiles.count(rows[e]));
        for (int32_t i = 0; i < n; ++i, ++count) {
          const Task tile{TaskKind::dispatch, peer, e, i,
                          static_cast<int32_t>(layout.tiles.rows_of(i, rows[e]))};
          const Blocks waits = routed_.wait(layout, tile);
          for (int b = waits.first; b <= waits.last; ++b) ++missing_[b];
          if (peer == shape_.rank) {
            mine_.push(tile);
            ++open_;
          } else if (count < layout.run_tiles()) {
            ready_.push(tile);
            ++leaving_;
          }
        }
      }
      bound_ -= (most(shape_) - count) * (peer == shape_.rank ? parts() : 2);
    }
    start_tiles();
    for (int b = 0; b < blocks_; ++b) release(b);
  }

  Shape shape_{};
  Routed routed_{};
  int64_t bound_ = 0, finished_ = 0;
  int32_t unheard_ = 0, blocks_ = 0;
  int32_t gated_ = 0;                   // 1: after the gate
  int32_t leaving_ = 0;                 // ready tiles of own rows
  int32_t open_ = 0;                    // known tiles for own experts without results
  Doorbell* bells_ = nullptr;           // [processors]
  int32_t* busy_ = nullptr;             // [processors]
  int32_t* left_ = nullptr;             // [slots]: parts of the product in work; 0: free
  TileGroup* groups_ = nullptr;         // [slots]: tiles in work
  int32_t* missing_ = nullptr;          // [blocks]: missing inputs of their sum
  TaskQueue ready_, products_, later_;  // others wait for ready ones: rows that leave or came
  TaskQueue arrived_, mine_;            // other ranks' tiles first: their results must travel
};

}  // namespace tessera::fused
