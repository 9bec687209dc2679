#pragma once

#include "fused/processor.h"
#include "fused/scheduler.h"
#include "fused/subscriber.h"

namespace tessera::fused {

/// A rank of a distributed MoE layer, epoch after epoch, without arithmetic: reads arrivals and
/// completions from words of memory, and gives tasks to processors. A driver decides the order of
/// looks: a thread, a loop over ranks, or a test of all orders.
class Coordinator {
 public:
  /// Bytes of needed memory.
  static int64_t bytes(const Shape& shape) {
    Carver measure(nullptr);
    return Coordinator(shape, nullptr, measure), measure.bytes();
  }
  /// `buffer`: the own symmetric buffer; `memory`: 64-byte aligned, zero.
  Coordinator(const Shape& shape, const std::byte* buffer, std::byte* memory) {
    Carver carver(memory);
    *this = Coordinator(shape, buffer, carver);
  }

  /// Starts the next epoch, with `blocks` of tokens. Nothing of the epoch before is under way.
  template <class Words>
  TESSERA_ANYWHERE void begin(int blocks, bool shared, Words& words) {
    subscriber_.begin(++epoch_);
    scheduler_.begin(blocks, shared);
    scheduler_.hand_out(words);
  }
  /// Looks at one item and acts on it; false: nothing new.
  template <class Words>
  TESSERA_ANYWHERE bool look(int item, Words& words) {
    if (item < shape_.processors) {
      if (!look_at(item, words)) return false;
    } else {
      const Arrival arrival = subscriber_.look(item - shape_.processors, words);
      if (arrival.kind == Arrival::Kind::nothing) return false;
      follow(arrival);
    }
    scheduler_.hand_out(words);
    return true;
  }
  TESSERA_ANYWHERE int items() const { return shape_.processors + subscriber_.items(); }
  /// Looks at all items.
  template <class Words>
  TESSERA_ANYWHERE bool poll(Words& words) {
    bool has_arrivals = false;
    for (int p = 0; p < shape_.processors; ++p) has_arrivals |= look_at(p, words);
    if (has_arrivals) scheduler_.hand_out(words);  // before a long search
    subscriber_.look_everywhere(words, [&](const Arrival& arrival) {
      follow(arrival);
      has_arrivals = true;
    });
    if (has_arrivals) scheduler_.hand_out(words);
    return has_arrivals;
  }

  TESSERA_ANYWHERE bool done() const { return scheduler_.done(); }
  /// The missing arrival during a wait for a peer.
  TESSERA_ANYWHERE Arrival missing() const { return subscriber_.missing(shape_.rank); }
  /// Impossible counts of a peer, if any: they have no effect.
  TESSERA_ANYWHERE Arrival refused() const { return refused_; }
  TESSERA_ANYWHERE uint64_t epoch() const { return epoch_; }
  TESSERA_ANYWHERE const Scheduler& scheduler() const { return scheduler_; }
  TESSERA_ANYWHERE Processor processor(int i) const { return Processor(scheduler_.bell(i)); }
  /// The gate's results.
  TESSERA_ANYWHERE const Routed& routed() const { return routed_; }
  /// Rows of a tile's peer for own experts; for dispatch and collect, own rows for the peer's.
  TESSERA_ANYWHERE const int64_t* counts(const Task& task) const {
    return task.kind == TaskKind::dispatch || task.kind == TaskKind::collect ||
                   task.peer == shape_.rank
               ? routed_.to(shape_.layout, task.peer)
               : subscriber_.rows(task.peer);
  }

 private:
  Coordinator(const Shape& shape, const std::byte* buffer, Carver& memory)
      : shape_(shape),
        routed_{memory.take<int64_t>(int64_t{shape.layout.ranks} * shape.layout.experts),
                memory.take<Blocks>(int64_t{shape.layout.ranks} * shape.layout.most)},
        subscriber_(shape.layout, shape.experts, buffer, memory),
        scheduler_(shape, routed_, memory) {}

  template <class Words>
  TESSERA_ANYWHERE bool look_at(int processor, Words& words) {
    Task task;
    if (!scheduler_.look(processor, task, words)) return false;
    if (task.kind != TaskKind::gate) return true;
    for (int p = 0; p < shape_.layout.ranks; ++p)
      if (p != shape_.rank) subscriber_.expect(Round::combine, p, routed_.to(shape_.layout, p));
    return true;
  }
  TESSERA_ANYWHERE void follow(const Arrival& arrival) {
    if (arrival.kind == Arrival::Kind::refused) refused_ = arrival;
    if (arrival.kind == Arrival::Kind::rows) scheduler_.arrived(arrival.tile);
    if (arrival.kind == Arrival::Kind::results) scheduler_.returned(arrival.tile);
    if (arrival.kind == Arrival::Kind::counts)
      scheduler_.heard(
          subscriber_.expect(Round::dispatch, arrival.peer, subscriber_.rows(arrival.peer)));
  }

  Shape shape_{};
  Routed routed_{};
  Subscriber subscriber_{};
  Scheduler scheduler_{};
  Arrival refused_{};
  uint64_t epoch_ = 0;
};

}  // namespace tessera::fused
