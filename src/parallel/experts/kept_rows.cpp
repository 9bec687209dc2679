#include "parallel/experts/kept_rows.h"

#include <algorithm>
#include <map>
#include <vector>

#include "parallel/experts/timetable.h"

namespace tessera::parallel {
namespace {

enum class Place { nowhere, under_way, home };

/// What ScheduledExchange holds of a layer, without the rows.
class LayerRows {
 public:
  LayerRows(const Timetable& timetable, const RowSizes& sizes, int layer)
      : timetable_(timetable), sizes_(sizes), layer_(layer) {}

  void launch(int step) {
    if (timetable_.forced(step)) results_.clear();
    tokens_ = timetable_.adaptive(layer_);
    results_[step] = timetable_.consumed(step, layer_) ? Place::under_way : Place::nowhere;
  }
  void read(int step) {
    bring_home(step - timetable_.lag(step, layer_));
    forget(step + 1);
  }
  int64_t bytes() const {
    int64_t sum = tokens_ ? sizes_.tokens * sizes_.token_bytes : 0;
    for (const auto& [source, place] : results_)
      sum += place == Place::home ? sizes_.home() : place == Place::under_way ? sizes_.wire() : 0;
    return sum;
  }

 private:
  void bring_home(int source) {
    if (results_.at(source) == Place::home) return;
    if (!timetable_.full(source, layer_)) bring_home(source - 1);
    results_.at(source) = Place::home;
  }
  void forget(int next) {
    int lowest = next;
    if (next < timetable_.steps()) {
      lowest = next - timetable_.lag(next, layer_);
      if (!timetable_.full(next, layer_)) lowest = std::min(lowest, next - 1);
      if (!timetable_.forced(next))
        for (const auto& [source, place] : results_)
          if (source >= lowest && place != Place::home && !timetable_.full(source, layer_))
            lowest = std::min(lowest, source - 1);
    }
    results_.erase(results_.begin(), results_.lower_bound(lowest));
    tokens_ &= !results_.empty();
  }

  const Timetable& timetable_;
  const RowSizes& sizes_;
  int layer_;
  bool tokens_ = false;
  std::map<int, Place> results_;  // by source step
};

}  // namespace

int64_t kept_row_bytes(const Plan& plan, int steps, const RowSizes& sizes) {
  const Timetable timetable(plan, sizes.layers, steps);
  std::vector<LayerRows> layers;
  for (int l = 0; l < sizes.layers; ++l) layers.emplace_back(timetable, sizes, l);
  int64_t peak = 0, kept = 0;
  for (int s = 0; s < steps; ++s)
    for (LayerRows& layer : layers) {
      kept -= layer.bytes();
      layer.launch(s);
      // The other half works while the rows of this one are under way.
      if (plan.schedule == ExpertSchedule::staggered_batch)
        peak = std::max(peak, kept + layer.bytes());
      layer.read(s);
      kept += layer.bytes();
      peak = std::max(peak, kept);
    }
  return peak;
}

int64_t exchange_bytes(const RowSizes& sizes, int ranks) {
  const int64_t out = sizes.wire() + sizes.home();      // dispatch, and what comes home
  return out + (ranks - 1) * out / std::max(ranks, 1);  // of others: dispatch, and the results
}

}  // namespace tessera::parallel
