#pragma once

#include <string>
#include <vector>

#include "planner/cluster_description.h"

namespace tessera::planner {

/// The links of a cluster, and the route of a message between two ranks.
class Routes {
 public:
  struct Way {
    std::vector<int> links;
    double latency = 0;
  };
  Routes(const Cluster& cluster, int ranks);
  const Way& way(int from, int to) const {
    return ways_[static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to)];
  }
  int links() const { return static_cast<int>(names_.size()); }
  const std::string& name(int link) const { return names_[static_cast<size_t>(link)]; }
  double bytes_per_second(int link) const { return speeds_[static_cast<size_t>(link)]; }

 private:
  int add(std::string name, double bytes_per_second);

  int ranks_;
  std::vector<std::string> names_;
  std::vector<double> speeds_;
  std::vector<Way> ways_;
};

}  // namespace tessera::planner
