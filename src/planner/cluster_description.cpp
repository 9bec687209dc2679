#include "planner/cluster_description.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/is_there.h"
#include "base/printable.h"

namespace tessera::planner {
namespace {

using base::Json;

constexpr double kMost = 1e18;  // the largest number in a description

std::string shown(const Json& value) {
  return base::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// An object of a description; unknown keys are errors.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object_.is_object(), ErrorCode::usage, "{}: {}; expected an object", where_,
            shown(object_));
  }
  bool has(const char* key) {
    known_.insert(key);
    return object_.contains(key) && !object_.at(key).is_null();
  }
  std::string place(const char* key) const { return where_ + ": '" + key + "'"; }
  const Json& at(const char* key) {
    require(has(key), ErrorCode::usage, "{} is missing", place(key));
    return object_.at(key);
  }
  double number(const char* key, double usual, double least = 0) {
    if (!has(key)) return usual;
    const Json& value = object_.at(key);
    const bool fits =
        value.is_number() && value.get<double>() >= least && value.get<double>() <= kMost;
    require(fits, ErrorCode::usage, "{} is {}; expected a number of at least {}", place(key),
            shown(value), least);
    return value.get<double>();
  }
  double positive(const char* key) {
    const Json& value = at(key);
    require(value.is_number() && value.get<double>() > 0 && value.get<double>() <= kMost,
            ErrorCode::usage, "{} is {}; expected a number above 0", place(key), shown(value));
    return value.get<double>();
  }
  int count(const char* key, int usual, int least = 1) {
    if (!has(key)) return usual;
    const Json& value = object_.at(key);
    const bool fits =
        value.is_number_integer() && value.get<double>() >= least && value.get<double>() <= 100000;
    require(fits, ErrorCode::usage, "{} is {}; expected a whole number from {} to 100000",
            place(key), shown(value), least);
    return value.get<int>();
  }
  std::string text(const char* key, const std::string& usual) {
    if (!has(key)) return usual;
    const Json& value = object_.at(key);
    require(value.is_string(), ErrorCode::usage, "{} is {}; expected a text", place(key),
            shown(value));
    return value.get<std::string>();
  }
  bool flag(const char* key) {
    if (!has(key)) return false;
    const Json& value = object_.at(key);
    require(value.is_boolean(), ErrorCode::usage, "{} is {}; expected true or false", place(key),
            shown(value));
    return value.get<bool>();
  }
  void check_rest() const {
    for (const auto& item : object_.items())
      require(known_.contains(item.key()), ErrorCode::usage, "{}: {} is not known; known are {}",
              where_, base::printable(item.key()), fmt::join(known_, ", "));
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

Curve curve_of(const Json& list, const std::string& where) {
  require(list.is_array() && !list.empty(), ErrorCode::usage,
          "{} is {}; expected a list of [size, share]", where, shown(list));
  Curve curve;
  for (const Json& point : list) {
    const bool fits = point.is_array() && point.size() == 2 && point[0].is_number() &&
                      point[1].is_number() && point[0].get<double>() > 0 &&
                      point[1].get<double>() > 0 && point[1].get<double>() <= 10;
    require(fits, ErrorCode::usage,
            "{} holds {}; expected [size, share], a size above 0 and a share above 0", where,
            shown(point));
    require(curve.points.empty() || curve.points.back().first < point[0].get<double>(),
            ErrorCode::usage, "{} holds {}; expected sizes that grow", where, shown(point));
    curve.points.emplace_back(point[0].get<double>(), point[1].get<double>());
  }
  return curve;
}

Link link_of(const Json& object, const std::string& where) {
  Fields read(object, where);
  const Link link{read.positive("bytes_per_second"), read.number("latency", 0)};
  read.check_rest();
  return link;
}

Device device_of(const Json& object, const std::string& where) {
  Fields read(object, where);
  Device device;
  device.name = read.text("name", "device");
  const Json& flops = read.at("flops");
  Fields peaks(flops, read.place("flops"));
  for (const char* dtype : {"bf16", "f16", "f32", "int8"})
    if (peaks.has(dtype)) device.flops[dtype] = peaks.positive(dtype);
  peaks.check_rest();
  require(!device.flops.empty(), ErrorCode::usage, "{} is {}; expected a peak of bf16 or f32",
          read.place("flops"), shown(flops));
  device.memory_bytes = read.positive("memory_bytes");
  device.memory_bandwidth = read.positive("memory_bandwidth");
  device.op_seconds = read.number("op_seconds", 0);
  device.units = read.count("units", 0, 0);
  device.head_multiple = read.count("head_multiple", 1);
  if (read.has("curves")) {
    const Json& curves = read.at("curves");
    Fields kinds(curves, read.place("curves"));
    for (const char* kind :
         {"matmul", "experts", "attention", "convolution", "memory", "add_gated", "cast", "combine",
          "concat", "layer_norm", "rms_norm", "rope", "route", "silu"})
      if (kinds.has(kind)) device.curves[kind] = curve_of(kinds.at(kind), kinds.place(kind));
    kinds.check_rest();
  }
  read.check_rest();
  return device;
}

Software software_of(const Json& object, const std::string& where) {
  Fields read(object, where);
  Software software;
  software.name = read.text("name", software.name);
  software.host_op_seconds = read.number("host_op_seconds", 0);
  software.host_message_seconds = read.number("host_message_seconds", 0);
  software.message_seconds = read.number("message_seconds", 0);
  software.message_bytes_per_second = read.number("message_bytes_per_second", 0);
  software.element_bytes = read.number("element_bytes", 1);
  if (read.has("unfused")) {
    const Json& kinds = read.at("unfused");
    const std::string place = read.place("unfused");
    require(kinds.is_object(), ErrorCode::usage, "{} is {}; expected an object", place,
            shown(kinds));
    for (const auto& item : kinds.items()) {
      Fields one(item.value(), place + ": '" + base::printable(item.key()) + "'");
      software.unfused[item.key()] = {one.number("kernels", 1), one.number("bytes", 1)};
      one.check_rest();
    }
  }
  software.start_seconds = read.number("start_seconds", 0);
  software.connect_seconds = read.number("connect_seconds", 0);
  read.check_rest();
  return software;
}

Json to_json(const Link& link) {
  return {{"bytes_per_second", link.bytes_per_second}, {"latency", link.latency}};
}

}  // namespace

double Curve::at(double size) const {
  if (points.empty()) return 1;
  if (size <= points.front().first)  // smaller ops take as long as the smallest known op
    return points.front().second * std::max(size, 1.0) / points.front().first;
  for (size_t i = 1; i < points.size(); ++i) {
    const auto& [s0, y0] = points[i - 1];
    const auto& [s1, y1] = points[i];
    if (size <= s1) return y0 + (y1 - y0) * std::log(size / s0) / std::log(s1 / s0);
  }
  return points.back().second;
}

Cluster cluster_of(const Json& description, const std::string& where) {
  Fields read(description, where);
  Cluster cluster;
  cluster.name = read.text("name", where);
  cluster.device = device_of(read.at("device"), read.place("device"));
  cluster.hosts = read.count("hosts", 1);
  cluster.devices = read.count("devices_per_host", 1);
  cluster.groups = read.count("groups_per_host", 1);
  if (cluster.devices > 1 || read.has("link"))
    cluster.link = link_of(read.at("link"), read.place("link"));
  for (auto [key, into] :
       {std::pair{"bridge", &cluster.bridge}, {"bus", &cluster.bus}, {"fabric", &cluster.fabric}})
    if (read.has(key)) *into = link_of(read.at(key), read.place(key));
  if (cluster.hosts > 1 || read.has("network"))
    cluster.network = link_of(read.at("network"), read.place("network"));
  cluster.network_by_device = read.flag("network_by_device");
  if (read.has("software"))
    cluster.software = software_of(read.at("software"), read.place("software"));
  read.check_rest();
  require(cluster.devices % cluster.groups == 0, ErrorCode::usage,
          "{} is {}; expected a divisor of 'devices_per_host' {}", read.place("groups_per_host"),
          cluster.groups, cluster.devices);
  return cluster;
}

Json to_json(const Cluster& cluster) {
  const Device& device = cluster.device;
  Json curves = Json::object();
  for (const auto& [kind, curve] : device.curves) curves[kind] = curve.points;
  Json made = {{"name", cluster.name},
               {"device",
                {{"name", device.name},
                 {"flops", device.flops},
                 {"memory_bytes", device.memory_bytes},
                 {"memory_bandwidth", device.memory_bandwidth},
                 {"op_seconds", device.op_seconds},
                 {"units", device.units},
                 {"head_multiple", device.head_multiple},
                 {"curves", curves}}},
               {"hosts", cluster.hosts},
               {"devices_per_host", cluster.devices},
               {"groups_per_host", cluster.groups},
               {"network_by_device", cluster.network_by_device},
               {"software",
                {{"name", cluster.software.name},
                 {"host_op_seconds", cluster.software.host_op_seconds},
                 {"host_message_seconds", cluster.software.host_message_seconds},
                 {"message_seconds", cluster.software.message_seconds},
                 {"message_bytes_per_second", cluster.software.message_bytes_per_second},
                 {"element_bytes", cluster.software.element_bytes},
                 {"start_seconds", cluster.software.start_seconds},
                 {"connect_seconds", cluster.software.connect_seconds}}}};
  for (const auto& [kind, one] : cluster.software.unfused)
    made["software"]["unfused"][kind] = {{"kernels", one.kernels}, {"bytes", one.bytes}};
  if (cluster.link.bytes_per_second > 0) made["link"] = to_json(cluster.link);
  if (cluster.network.bytes_per_second > 0) made["network"] = to_json(cluster.network);
  if (cluster.bridge) made["bridge"] = to_json(*cluster.bridge);
  if (cluster.bus) made["bus"] = to_json(*cluster.bus);
  if (cluster.fabric) made["fabric"] = to_json(*cluster.fabric);
  return made;
}

Cluster open_cluster(const std::string& name_or_file, int ranks) {
  std::optional<Cluster> found = known_cluster(name_or_file);
  if (base::is_there(name_or_file)) found = cluster_of(base::read_json(name_or_file), name_or_file);
  require(found.has_value(), ErrorCode::usage,
          "`hardware` {}: neither a file nor a known name; known are {}",
          base::printable(name_or_file), fmt::join(known_clusters(), ", "));
  require(ranks <= found->ranks(), ErrorCode::usage,
          "`hardware` {}: {} host{} of {} device{} are {}; {} ranks need as many",
          base::printable(name_or_file), found->hosts, found->hosts == 1 ? "" : "s", found->devices,
          found->devices == 1 ? "" : "s", found->ranks(), ranks);
  return *found;
}

namespace {

// Reads "25Gbit", "12.5GB", "10us" or "2" in bytes, bytes a second, seconds or without a unit.
double quantity(const std::string& text, const std::string& entry) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const std::map<std::string, double> units{
      {"", 1},     {"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6},  {"KB", 1e3},
      {"MB", 1e6}, {"GB", 1e9},   {"TB", 1e12},    {"us", 1e-6},     {"ms", 1e-3},
      {"s", 1},    {"MB/s", 1e6}, {"GB/s", 1e9},   {"TFLOPS", 1e12}, {"ns", 1e-9}};
  const auto known = units.find(unit);
  require(end > 0 && known != units.end() && std::isfinite(value) && value > 0, ErrorCode::usage,
          "`what_if` {}: '{}' is no quantity above 0, as 25Gbit, 12GB, 10us", entry, text);
  return value * known->second;
}

}  // namespace

void change(Cluster& cluster, const std::string& changes) {
  size_t begin = 0;
  while (begin < changes.size()) {
    const size_t end = std::min(changes.find(',', begin), changes.size());
    const std::string entry = changes.substr(begin, end - begin);
    begin = end + 1;
    const size_t sign = entry.find('=');
    const std::string key = entry.substr(0, sign);
    const std::string text = sign == std::string::npos ? "" : entry.substr(sign + 1);
    const double value = quantity(text, base::printable(entry));
    if (key == "link") {
      cluster.link.bytes_per_second = value;
      if (cluster.bus) cluster.bus->bytes_per_second = value * cluster.devices;
    } else if (key == "latency") {
      cluster.link.latency = value;
    } else if (key == "bridge" && cluster.bridge) {
      cluster.bridge->bytes_per_second = value;
    } else if (key == "network") {
      cluster.network.bytes_per_second = value;
    } else if (key == "network-latency") {
      cluster.network.latency = value;
    } else if (key == "memory") {
      cluster.device.memory_bytes = value;
    } else if (key == "bandwidth") {
      cluster.device.memory_bandwidth = value;
    } else if (key == "speed") {  // factor of speed
      for (auto& [dtype, peak] : cluster.device.flops) peak *= value;
    } else {
      fail(ErrorCode::usage,
           "`what_if` {}: not known here; known are link, latency, bridge, network, "
           "network-latency, memory, bandwidth, speed",
           base::printable(entry));
    }
  }
}

}  // namespace tessera::planner
