#pragma once

#include "fused/cuda/moves.cuh"

// The gate's task: sorts the routed pairs, and tells all ranks their row counts.
namespace tessera::fused::cuda {

/// Ends the rank's part with an error; the first one stays.
__device__ inline void end_with(const RankWork& r, Ending::Kind kind, int peer) {
  if (r.ending->kind != Ending::Kind::unknown) return;
  r.ending->missing.peer = peer;
  r.ending->kind = kind;
}

// Calls f(group, pair) for the pairs of this thread's part of all pairs, in order.
template <class F>
__device__ inline void each_pair(const Seat& seat, const F& f) {
  const RankWork& r = seat.own();
  const int64_t pairs = r.tokens * seat.w.slots;
  const int64_t part = (pairs + kThreads - 1) / kThreads, first = own_thread() * part;
  for (int64_t a = first; a < first + part && a < pairs; ++a) {
    const int32_t id = r.ids[a];
    if (id >= 0 && id < seat.w.experts)
      f(seat.w.group_of[id], a);
    else if (id != -1)
      end_with(r, Ending::Kind::no_expert, seat.rank);
  }
}

/// A stable counting sort of the pairs by peer and expert.
__device__ inline void sort_pairs(const Seat& seat) {
  const RankWork& r = seat.own();
  const int groups = seat.w.layout.ranks * seat.w.layout.experts;
  int32_t* const count = r.counts + int64_t{own_thread()} * groups;
  for (int g = 0; g < groups; ++g) count[g] = 0;
  each_pair(seat, [&](int g, int64_t) { ++count[g]; });
  meet();
  for (int g = own_thread(); g < groups; g += kThreads) {  // pairs of earlier threads
    int32_t sum = 0;
    for (int t = 0; t < kThreads; ++t) {
      int32_t& one = r.counts[int64_t{t} * groups + g];
      const int32_t mine = one;
      one = sum;
      sum += mine;
    }
    r.begins[g + 1] = sum;
  }
  meet();
  if (own_thread() == 0) {
    r.begins[0] = 0;
    for (int g = 0; g < groups; ++g) r.begins[g + 1] += r.begins[g];
  }
  meet();
  each_pair(seat,
            [&](int g, int64_t a) { r.pairs[r.begins[g] + count[g]++] = static_cast<int32_t>(a); });
}

template <class Faults>
__device__ inline void announce(const Seat& seat) {
  const Work& w = seat.w;
  const Layout& layout = w.layout;
  const Routed& routed = seat.coordinator().routed();
  const RankWork& r = seat.own();
  for (int g = own_thread(); g < layout.ranks * layout.experts; g += kThreads)
    routed.to(layout, g / layout.experts)[g % layout.experts] = r.begins[g + 1] - r.begins[g];
  meet();
  if (own_thread() < layout.ranks && !layout.fits(routed.to(layout, own_thread())))
    end_with(r, Ending::Kind::many_rows, own_thread());
  meet();
  if (r.ending->kind != Ending::Kind::unknown) return;
  const Dispatcher dispatcher = seat.dispatcher();
  for (int g = own_thread(); g < layout.ranks * layout.experts; g += kThreads) {
    const int peer = g / layout.experts, e = g % layout.experts;
    const int64_t rows = routed.to(layout, peer)[e];
    if (peer != seat.rank &&
        !(Faults::is(Fault::counts_to_one_peer) && peer != (seat.rank + 1) % layout.ranks))
      put_word(seat, dispatcher.count(peer, e, rows, w.epoch));
    Task tile{TaskKind::dispatch, peer, e};
    for (int64_t i = 0; i < layout.tiles.count(rows); ++i) {
      tile.index = static_cast<int32_t>(i);
      tile.rows = static_cast<int32_t>(layout.tiles.rows_of(i, rows));
      const int32_t* const pair = seat.pairs(tile);
      routed.wait(layout, tile) = {pair[0] / w.slots / w.block,
                                   pair[tile.rows - 1] / w.slots / w.block};
    }
  }
}

template <class Faults>
__device__ inline void route(const Seat& seat) {
  sort_pairs(seat);
  meet();
  announce<Faults>(seat);
}

}  // namespace tessera::fused::cuda
