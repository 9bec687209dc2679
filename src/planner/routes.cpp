#include "planner/routes.h"

#include <utility>

#include "base/fail.h"

namespace tessera::planner {

int Routes::add(std::string name, double bytes_per_second) {
  names_.push_back(std::move(name));
  speeds_.push_back(bytes_per_second);
  return static_cast<int>(names_.size()) - 1;
}

Routes::Routes(const Cluster& cluster, int ranks) : ranks_(ranks) {
  const int per_host = cluster.devices, per_group = per_host / cluster.groups;
  const int hosts = (ranks + per_host - 1) / per_host;
  std::vector<int> out, in, network_out, network_in, bus, up, down;
  const bool linked = cluster.link.bytes_per_second > 0;
  for (int r = 0; r < ranks && linked; ++r) {
    out.push_back(add(fmt::format("out {}", r), cluster.link.bytes_per_second));
    in.push_back(add(fmt::format("in {}", r), cluster.link.bytes_per_second));
  }
  for (int h = 0; h < hosts; ++h) {
    if (cluster.bus) bus.push_back(add(fmt::format("bus {}", h), cluster.bus->bytes_per_second));
    if (!cluster.bridge) continue;
    up.push_back(add(fmt::format("bridge {} up", h), cluster.bridge->bytes_per_second));
    down.push_back(add(fmt::format("bridge {} down", h), cluster.bridge->bytes_per_second));
  }
  const int ports = cluster.network_by_device ? ranks : hosts;
  for (int p = 0; p < ports && hosts > 1; ++p) {
    network_out.push_back(add(fmt::format("network out {}", p), cluster.network.bytes_per_second));
    network_in.push_back(add(fmt::format("network in {}", p), cluster.network.bytes_per_second));
  }
  const int fabric =
      cluster.fabric && hosts > 1 ? add("fabric", cluster.fabric->bytes_per_second) : -1;
  ways_.resize(static_cast<size_t>(ranks) * static_cast<size_t>(ranks));
  const auto at = [](const std::vector<int>& list, int i) { return list[static_cast<size_t>(i)]; };
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      Way& way =
          ways_[static_cast<size_t>(from) * static_cast<size_t>(ranks) + static_cast<size_t>(to)];
      const int host = from / per_host, there = to / per_host;
      if (linked) way.links = {at(out, from), at(in, to)};
      way.latency = cluster.link.latency;
      if (host == there) {
        if (cluster.bus) way.links.push_back(at(bus, host));
        const int group = from % per_host / per_group, other = to % per_host / per_group;
        if (cluster.bridge && group != other) {
          way.links.push_back(at(group < other ? up : down, host));
          way.latency += cluster.bridge->latency;
        }
        continue;
      }
      way.links.push_back(at(network_out, cluster.network_by_device ? from : host));
      way.links.push_back(at(network_in, cluster.network_by_device ? to : there));
      if (fabric >= 0) way.links.push_back(fabric);
      way.latency += cluster.network.latency;
    }
}

}  // namespace tessera::planner
