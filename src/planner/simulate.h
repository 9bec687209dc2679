#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/cluster_description.h"
#include "planner/recording.h"

namespace tessera::planner {

/// A span of a timeline: a rank that computes or waits, a message in flight, or bytes on a link.
struct Span {
  double begin = 0, end = 0;
  int rank = 0;
  int peer = -1;     ///< for messages: the receiver; `rank` is the sender
  std::string name;  ///< "compute", "wait", or the operation of a message
  int step = -1;
  int link = -1;  ///< a message moves bytes on this link of Simulation::links
};

/// A simulated run on a cluster.
struct Simulation {
  double seconds = 0;                        ///< from the first rank's start to the last rank's end
  double prepare = 0;                        ///< seconds before the first step
  std::vector<double> rank_seconds;          ///< until each rank's end
  std::vector<double> compute_seconds;       ///< seconds of ops, by rank
  std::vector<double> wait_seconds;          ///< idle seconds, by rank
  std::map<std::string, double> link_bytes;  ///< by link: "out 3", "in 3", "bridge 0", "network 1"
  std::map<std::string, double> link_seconds;  ///< a link moves bytes for so long
  std::vector<Span> spans;                     ///< where they are wanted
  std::vector<std::string> links;              ///< with spans: their names
  double waiting_share() const;                ///< ranks wait for this share of all ranks' time
};

/// Replays a recording on a cluster. Each rank runs its events in order, ops one after the other.
/// Messages travel meanwhile and queue at their links; a link carries messages one after the other
/// at its bandwidth, and a wait lasts until the message arrives. Of repeating steps, a period
/// beyond the recorded ones is replayed; what it adds stands for each further period. The same
/// input gives bit-identical output. `spans`: also record the timeline of all steps.
Simulation simulate(const Recording& recording, const Cluster& cluster, bool spans = false);

}  // namespace tessera::planner
