#include <algorithm>

#include "models/published_models.h"
#include "planner/cluster_description.h"

namespace tessera::planner {
namespace {

/// Vendors' dense peaks, and the class of the links within a host.
struct Known {
  const char* name;
  double bf16, f32, int8;    // FLOP/s
  double memory, bandwidth;  // bytes, bytes/s
  int units;                 // streaming multiprocessors
  enum class Links { nvlink, pcie, staged } links;
  double link;  // bytes/s in one direction
  enum class Arch { volta, ampere, ada, hopper, blackwell } arch;
};

using Links = Known::Links;
using Arch = Known::Arch;

constexpr Known kKnown[] = {
    {"L40", 181.05e12, 90.5e12, 362e12, 48e9, 864e9, 142, Links::pcie, 31.5e9, Arch::ada},
    {"L20", 119.5e12, 59.35e12, 239e12, 48e9, 864e9, 92, Links::pcie, 31.5e9, Arch::ada},
    {"RTX-4090", 165.2e12, 82.6e12, 660e12, 24e9, 1008e9, 128, Links::staged, 31.5e9, Arch::ada},
    {"A100", 312e12, 19.5e12, 624e12, 80e9, 2039e9, 108, Links::nvlink, 300e9, Arch::ampere},
    {"H100", 989.4e12, 66.9e12, 1979e12, 80e9, 3350e9, 132, Links::nvlink, 450e9, Arch::hopper},
    {"H200", 989.4e12, 66.9e12, 1979e12, 141e9, 4800e9, 132, Links::nvlink, 450e9, Arch::hopper},
    {"H20", 148e12, 44e12, 296e12, 96e9, 4000e9, 78, Links::nvlink, 450e9, Arch::hopper},
    {"B200", 2250e12, 80e12, 4500e12, 192e9, 8000e9, 148, Links::nvlink, 900e9, Arch::blackwell},
    {"V100", 125e12, 15.7e12, 0, 32e9, 897e9, 80, Links::nvlink, 150e9, Arch::volta},
    {"T4", 65.1e12, 8.1e12, 130e12, 16e9, 320e9, 40, Links::pcie, 15.75e9, Arch::volta}};

// Curves of an architecture: the share of the peak that large products and attention reach with the
// libraries of 2024. The minimal time of a kernel limits smaller ops.
std::map<std::string, Curve> curves_of(const Known& known) {
  double product = 0.72, attention = 0.55;
  if (known.arch == Arch::ada) product = 0.72, attention = 0.73;
  if (known.arch == Arch::ampere) product = 0.75, attention = 0.57;
  if (known.arch == Arch::hopper) product = 0.68, attention = 0.45;
  if (known.arch == Arch::blackwell) product = 0.60, attention = 0.40;
  if (known.bf16 < 150e12 && known.arch == Arch::hopper) product = 0.85, attention = 0.75;
  const auto curve = [&](double most) {
    const double least = known.bf16 * 5e-6;  // FLOPs of the shortest kernel
    return Curve{{{least / 10, most * 0.1},
                  {least, most * 0.6},
                  {least * 10, most * 0.95},
                  {least * 100, most}}};
  };
  return {{"matmul", curve(product)},
          {"attention", curve(attention)},
          {"convolution", curve(product * 0.6)},
          {"memory", {{{1e5, 0.1}, {1e6, 0.35}, {1e7, 0.7}, {1e8, 0.85}}}}};
}

Cluster described(const Known& known) {
  Cluster cluster;
  cluster.name = known.name;
  Device& device = cluster.device;
  device.name = known.name;
  device.flops = {{"bf16", known.bf16}, {"f32", known.f32}};
  if (known.int8 > 0) device.flops["int8"] = known.int8;
  device.memory_bytes = known.memory;
  device.memory_bandwidth = known.bandwidth;
  device.units = known.units;
  device.head_multiple = 32;
  device.op_seconds = 3e-6;
  device.curves = curves_of(known);
  cluster.devices = 8;
  cluster.hosts = 512;  // as many hosts as ranks need
  // Share of a link's bandwidth under NCCL, and the latency of a message.
  const bool nvlink = known.links == Links::nvlink;
  const bool staged = known.links == Links::staged;
  const double reached = nvlink ? 0.78 : staged ? 0.2 : 0.75;
  cluster.link = {known.link * reached, nvlink ? 10e-6 : 25e-6};
  // Without peer access bytes are copied through the host's memory, over the bus of all devices.
  if (staged) cluster.bus = Link{20e9, 0};
  if (!nvlink) {
    cluster.groups = 2;
    cluster.bridge = Link{20e9, 5e-6};
  }
  cluster.network = nvlink ? Link{25e9, 15e-6} : Link{12.5e9 * 0.8, 40e-6};
  cluster.network_by_device = nvlink;
  return cluster;
}

std::string canonical(const std::string& name) {
  const std::string key = models::model_key(name);
  const std::map<std::string, std::string> aliases{
      {"a100_80g_nvlink", "a100"}, {"a100_80g", "a100"},  {"a100_nvlink", "a100"},
      {"h100_80g_nvlink", "h100"}, {"h20_nvlink", "h20"}, {"v100_nvlink", "v100"},
      {"h100_nvlink", "h100"},     {"4090", "rtx_4090"},  {"rtx4090", "rtx_4090"}};
  const auto found = aliases.find(key);
  return found == aliases.end() ? key : found->second;
}

}  // namespace

std::vector<std::string> known_clusters() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

std::optional<Cluster> known_cluster(const std::string& name) {
  const std::string key = canonical(name);
  for (const Known& known : kKnown)
    if (models::model_key(known.name) == key) return described(known);
  return {};
}

}  // namespace tessera::planner
