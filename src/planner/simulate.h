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
  int peer = -1;     ///< of a message: from `rank` to this one
  std::string name;  ///< "compute", "wait", or the operation of a message
  int step = -1;
  int link = -1;  ///< of Simulation::links: the bytes of a message on it
};

/// A run as it would be on a cluster.
struct Simulation {
  double seconds = 0;                        ///< from the first rank's start to the last one's end
  double prepare = 0;                        ///< of these, before the first step
  std::vector<double> rank_seconds;          ///< until each rank has ended
  std::vector<double> compute_seconds;       ///< of ops, by rank
  std::vector<double> wait_seconds;          ///< in which a rank stands still, by rank
  std::map<std::string, double> link_bytes;  ///< by link: "out 3", "in 3", "bridge 0", "network 1"
  std::map<std::string, double> link_seconds;  ///< in which it moves bytes
  std::vector<Span> spans;                     ///< where they are wanted
  std::vector<std::string> links;              ///< with spans: their names
  double waiting_share() const;                ///< of all ranks' time until the end
};

/// Replays a recording on a cluster: each rank does its events in their order, ops one after the
/// other; messages travel meanwhile, in the order of their links' queues, each link one after the
/// other at its bandwidth, and a wait lasts until its message is there. Steps that repeat are
/// replayed until they take as long as the period before; the others take as long. The same input
/// gives the same output, bit by bit. `spans`: also what each rank did when, of all steps.
Simulation simulate(const Recording& recording, const Cluster& cluster, bool spans = false);

}  // namespace tessera::planner
