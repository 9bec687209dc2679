#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::planner {

/// Share of the peak that an op reaches, by its size: points (size, share), interpolated over the
/// logarithm of the size. Sizes are FLOPs, or bytes for ops that only move memory.
struct Curve {
  std::vector<std::pair<double, double>> points;
  double at(double size) const;
};

/// A kind of accelerator, or the cores of a rank.
struct Device {
  std::string name;
  std::map<std::string, double> flops;            ///< peak FLOP/s by dtype: "bf16", "f32", "int8"
  double memory_bytes = 0, memory_bandwidth = 0;  ///< bytes; bytes/s
  /// "matmul", "experts", "attention", "convolution", and "memory" for all other kinds without own
  /// curves.
  std::map<std::string, Curve> curves;
  double op_seconds = 0;  ///< overhead of each op
  int units = 0;          ///< units of a GPU that compute tiles of a product in parallel; 0: a CPU
  int head_multiple = 1;  ///< channels of a head are computed as a multiple of this
};

/// A connection with equal bandwidth in both directions.
struct Link {
  double bytes_per_second = 0, latency = 0;  ///< bytes/s one way; seconds of a small message
};

/// How a program computes an op that Tessera computes in a single kernel.
struct Unfused {
  double kernels = 1;  ///< for a merge of partial attention: of each part but the first
  double bytes = 1;    ///< traffic, times that of the single kernel
};

/// The program's overhead in driving devices.
struct Software {
  std::string name = "tessera";
  double host_op_seconds = 0;           ///< host time to issue a kernel; devices wait for the host
  double host_message_seconds = 0;      ///< the same of the messages of one call, as a collective
  double message_seconds = 0;           ///< device time to send a message, as CPUs need
  double message_bytes_per_second = 0;  ///< plus device time for its bytes; 0: none
  double element_bytes =
      1;  ///< traffic of ops that go element by element, times what fused ones have
  std::map<std::string, Unfused> unfused;  ///< by kind of op; "other": kernels of unnamed kinds
  double start_seconds = 0;                ///< before the first step of a run, once
  /// Before the first message of a part, once for each rank that takes part.
  double connect_seconds = 0;
};

/// Devices, hosts and links. Ranks are placed in order, host by host.
struct Cluster {
  std::string name;
  Device device;
  int hosts = 1, devices = 1;      ///< devices of each host
  int groups = 1;                  ///< groups of a host's devices, such as CPU sockets
  Link link;                       ///< a device's link within its host
  std::optional<Link> bridge;      ///< connects two groups of a host; messages share the bandwidth
  std::optional<Link> bus;         ///< a host's bus, shared by all messages within the host
  Link network;                    ///< between hosts
  bool network_by_device = false;  ///< each device has its own network link
  std::optional<Link> fabric;      ///< shared by all messages between hosts
  Software software;

  int ranks() const { return hosts * devices; }
};

/// Reads a description (docs/guides/predict_a_run.md documents the format). Throws Error(usage)
/// with `where`, the field, its value and the expected values.
Cluster cluster_of(const base::Json& description, const std::string& where);
/// Writes a description for cluster_of().
base::Json to_json(const Cluster& cluster);
/// Opens a known cluster ("L40", "A100", "xdit-l40") or a JSON file. A description of one host or
/// device grows to `ranks`. Throws Error(usage) for an unknown name, listing the known names, and
/// for fewer devices than ranks.
Cluster open_cluster(const std::string& name_or_file, int ranks);
/// The names for open_cluster().
std::vector<std::string> known_clusters();
/// The cluster of a known name; none: the name is unknown.
std::optional<Cluster> known_cluster(const std::string& name);
/// Changes fields: "link=25Gbit,latency=10us,memory=40GB". Throws Error(usage).
void change(Cluster& cluster, const std::string& changes);

}  // namespace tessera::planner
