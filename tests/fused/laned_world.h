#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fused/protocol_world.h"

namespace tessera::fused {

// A deliberate fault in the use of two lanes.
enum class LaneFault {
  none,
  read_before_its_flag,   // a result is read without its epoch's flags
  lane_taken_early,       // a lane's next layer begins before the last one is done
  left_before_the_others  // a rank leaves with its results while others wait for its work
};

// Ranks with two lanes, which take layers in turn. In call c a rank begins layer c, works until its
// rows have left and layer c - 1 is served, and reads the results of layer c - lag, or of its own
// in the first call. Between calls a rank works on nothing, and waits for all ranks, as attention
// over ranks does.
class LanedWorld {
 public:
  // rows: [layer][from][to].
  LanedWorld(const std::vector<std::vector<std::vector<int64_t>>>& rows, int lag,
             LaneFault fault = LaneFault::none)
      : calls_(int(rows.size())), lag_(lag), fault_(fault), ranks_(rows[0].size()) {
    for (size_t lane = 0; lane < 2; ++lane) {
      Scenario one;
      one.ranks = int(rows[0].size());
      one.processors = 1;
      one.capacity = 0;
      one.later = true;
      one.combines = false;
      for (size_t layer = lane; layer < rows.size(); layer += 2) one.rows.push_back(rows[layer]);
      one.epochs = int(one.rows.size());
      lanes_[lane] = std::make_unique<ProtocolWorld>(one, Fault::none);
    }
  }

  size_t size() const { return ranks_.size() * sizeof(Rank) + lane(0).size() + lane(1).size(); }
  void save(std::byte* to) const {
    std::memcpy(to, ranks_.data(), ranks_.size() * sizeof(Rank));
    to += ranks_.size() * sizeof(Rank);
    lane(0).save(to);
    lane(1).save(to + lane(0).size());
  }
  void restore(const std::byte* from) {
    std::memcpy(ranks_.data(), from, ranks_.size() * sizeof(Rank));
    from += ranks_.size() * sizeof(Rank);
    lanes_[0]->restore(from);
    lanes_[1]->restore(from + lane(0).size());
  }
  std::string failure() const {
    if (!failure_.empty()) return failure_;
    return lane(0).failure().empty() ? lane(1).failure() : lane(0).failure();
  }

  int actions() const { return int(ranks_.size()) + lane(0).actions() + lane(1).actions(); }
  bool act(int action) {
    if (action < int(ranks_.size())) return go_on(action);
    action -= int(ranks_.size());
    const size_t of = action < lane(0).actions() ? 0 : 1;
    if (of == 1) action -= lane(0).actions();
    const int r = lane(int(of)).rank_of(action);
    if (r < 0) return lanes_[of]->act(action);
    // As the actors: a lane without work is left alone.
    return ranks_[size_t(r)].inside && !lane(int(of)).coordinator(r).done() &&
           lanes_[of]->act(action);
  }
  bool over() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& one) { return one.call == calls_ + 1; }) &&
           lane(0).over() && lane(1).over();
  }

 private:
  struct Rank {
    int32_t call = 0, inside = 0, begun = 0;
  };
  const ProtocolWorld& lane(int i) const { return *lanes_[size_t(i)]; }
  const Coordinator& layer(int r, int layer) const { return lane(layer % 2).coordinator(r); }
  bool done(int r, int of) const { return of < 0 || layer(r, of).done(); }

  // The rank's next step between calls and within, if nothing keeps it.
  bool go_on(int r) {
    Rank& me = ranks_[size_t(r)];
    if (me.call > calls_) return false;
    if (!me.inside) {  // all ranks have left the call before
      for (const Rank& other : ranks_)
        if (other.call < me.call) return false;
      return me.inside = 1, true;
    }
    if (me.call == calls_) {  // the end: nothing stays under way
      if (!done(r, me.call - 1) || !done(r, me.call - 2)) return false;
      for (int late = lag_ - 1; late >= 0; --late) read(r, me.call - 1 - late);
      return leave(me);
    }
    if (!me.begun) {
      if (fault_ != LaneFault::lane_taken_early && !done(r, me.call - 2)) return false;
      read(r, me.call - 2);  // the results leave the lane
      lanes_[size_t(me.call % 2)]->begin(r);
      return me.begun = 1, true;
    }
    return reads(r, me) && leave(me);
  }
  bool reads(int r, const Rank& me) {
    const int source = me.call == 0 ? 0 : std::max(me.call - lag_, 0);
    if (!layer(r, me.call).scheduler().departed() || !lane(0).idle(r) || !lane(1).idle(r))
      return false;
    if (fault_ == LaneFault::left_before_the_others) return lane(source % 2).has_results(r);
    if (me.call > 0 && !layer(r, me.call - 1).scheduler().served()) return false;
    if (fault_ != LaneFault::read_before_its_flag && !done(r, source)) return false;
    // With a lag of two the next layer of the lane has begun: the results were read before.
    if (source > me.call - 2) read(r, source);
    return true;
  }
  void read(int r, int source) {
    if (source >= 0 && !lane(source % 2).has_results(r))
      failure_ = "a result that is read is not the token's";
  }
  bool leave(Rank& me) {
    ++me.call;
    me.inside = me.begun = 0;
    return true;
  }

  const int calls_, lag_;
  const LaneFault fault_;
  std::vector<Rank> ranks_;
  std::array<std::unique_ptr<ProtocolWorld>, 2> lanes_;
  std::string failure_;
};

}  // namespace tessera::fused
