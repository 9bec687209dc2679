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
  std::map<std::string, Curve> curves;  ///< "matmul", "attention", "convolution", "memory"
  double op_seconds = 0;                ///< of each op beside its work
  int units = 0;          ///< that compute tiles of a product side by side; 0: not known
  int head_multiple = 1;  ///< channels of a head are computed as a multiple of this
};

/// A way for bytes, in each direction.
struct Link {
  double bytes_per_second = 0, latency = 0;  ///< one way; seconds of a small message
};

/// How the program drives its devices.
struct Software {
  std::string name = "tessera";
  double host_op_seconds = 0;       ///< in which the host issues an op; ops of a device wait for it
  double host_message_seconds = 0;  ///< the same of the messages of one call, as a collective
  double element_bytes =
      1;  ///< traffic of ops that go element by element, times what fused ones have
  double start_seconds = 0;  ///< before the first step of a run, once
  /// Before the first message of a part, once for each rank that takes part.
  double connect_seconds = 0;
};

/// Devices, hosts and links: ranks stand on them in their order, host by host.
struct Cluster {
  std::string name;
  Device device;
  int hosts = 1, devices = 1;      ///< devices of each host
  int groups = 1;                  ///< of a host's devices, such as CPU sockets
  Link link;                       ///< of a device, within its host
  std::optional<Link> bridge;      ///< between two groups of a host, shared by all that cross it
  std::optional<Link> bus;         ///< of a host, shared by all messages within it
  Link network;                    ///< between hosts
  bool network_by_device = false;  ///< each device has a network link of its own
  std::optional<Link> fabric;      ///< shared by all messages between hosts
  Software software;

  int ranks() const { return hosts * devices; }
};

/// Reads a description (docs/guides/predict_a_run.md has its form). Throws Error(usage) that names
/// `where`, the field, its value and what is expected.
Cluster cluster_of(const base::Json& description, const std::string& where);
/// A description that cluster_of() reads.
base::Json to_json(const Cluster& cluster);
/// Opens a known cluster ("L40", "A100", "xdit-l40") or a JSON file. A description of one host or
/// device grows to `ranks`. Throws Error(usage) for one that is not known, listing
/// those that are, and for fewer devices than ranks.
Cluster open_cluster(const std::string& name_or_file, int ranks);
/// Names that open_cluster() knows.
std::vector<std::string> known_clusters();
/// The cluster of a known name; none: the name is unknown.
std::optional<Cluster> known_cluster(const std::string& name);
/// Changes fields: "link=25Gbit,latency=10us,memory=40GB". Throws Error(usage).
void change(Cluster& cluster, const std::string& changes);

}  // namespace tessera::planner
