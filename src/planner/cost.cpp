#include "planner/cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::planner {
namespace {

constexpr int64_t kTile = 128;  // rows and columns of a unit's tile of a product

bool is_convolution(const std::string& kind) { return kind.find("conv") != std::string::npos; }

// The curve of a kind; "": the op only moves bytes.
std::string curve_name(const std::string& kind) {
  if (kind == "matmul" || kind == "experts") return kind;
  if (kind == "attention" || kind == "biased_attention") return "attention";
  return is_convolution(kind) ? "convolution" : "";
}

double share(const Device& device, const std::string& name, double size) {
  auto found = device.curves.find(name);
  if (found == device.curves.end() && name == "experts") found = device.curves.find("matmul");
  return found == device.curves.end() ? 1 : found->second.at(size);
}

double peak(const Device& device, tensor::DType dtype) {
  const auto of = [&](const char* name) {
    const auto found = device.flops.find(name);
    return found == device.flops.end() ? 0 : found->second;
  };
  if (dtype == tensor::DType::f32 && of("f32") > 0) return of("f32");
  if (dtype == tensor::DType::i8 && of("int8") > 0) return of("int8");
  for (const char* name : {"bf16", "f16", "f32"})
    if (of(name) > 0) return of(name);
  return device.flops.begin()->second;
}

int64_t tiles(int64_t size) { return std::max<int64_t>((size + kTile - 1) / kTile, 1); }

// Share of busy units, averaged over the rounds of tiles.
double filled(int64_t count, int units) {
  if (units <= 0) return 1;
  const double rounds = std::ceil(double(count) / units);
  return double(count) / (rounds * units);
}

// FLOPs as if all units and all channels of a head had work: an op of fewer rows takes as long as
// one that fills them, and never longer.
double padded_flops(const Op& op, const std::string& curve, const Device& device) {
  if (curve == "matmul")
    return op.flops / filled(tiles(op.size.rows) * tiles(op.size.columns), device.units);
  if (curve != "attention" || op.size.depth <= 0) return op.flops;
  const int64_t heads = std::max<int64_t>(op.size.columns / op.size.depth, 1);
  const double multiple = device.head_multiple, depth = double(op.size.depth);
  return op.flops / filled(tiles(op.size.rows) * heads, device.units) *
         (std::ceil(depth / multiple) * multiple / depth);
}

// A merge of n parts moves (n + 1) / n times the bytes of their f32 rows.
double parts_of(const Op& op) {
  const double rows = 4.0 * double(op.size.rows) * double(op.size.columns);
  return rows > 0 && op.bytes > rows ? std::round(rows / (op.bytes - rows)) : 2;
}

const Unfused* unfused(const Software& software, const std::string& kind) {
  const auto found = software.unfused.find(kind);
  return found == software.unfused.end() ? nullptr : &found->second;
}

}  // namespace

double kernels_of(const Op& op, const Software& software) {
  const Unfused* one = unfused(software, op.kind);
  if (!one) one = unfused(software, "other");
  if (!one) return 1;
  return op.kind == "combine" ? one->kernels * std::max(parts_of(op) - 1, 1.0) : one->kernels;
}

double seconds_of(const Op& op, const Device& device, const Software& software) {
  const std::string curve = curve_name(op.kind);
  const Unfused* const own = unfused(software, op.kind);
  const double bytes = op.bytes * (own ? own->bytes : curve.empty() ? software.element_bytes : 1);
  double seconds = 0;
  const bool curved = curve.empty() && device.curves.contains(op.kind);
  if (bytes > 0)
    seconds = bytes / (device.memory_bandwidth * share(device, curved ? op.kind : "memory", bytes));
  if (!curve.empty() && op.flops > 0) {
    const double flops = padded_flops(op, curve, device);
    seconds =
        std::max(seconds, flops / (peak(device, op.size.dtype) * share(device, curve, flops)));
  }
  return seconds + device.op_seconds * kernels_of(op, software);
}

double seconds_of(const std::map<std::string, tensor::Meter::Entry>& work, tensor::DType dtype,
                  const Device& device, const Software& software) {
  double seconds = 0;
  for (const auto& [kind, entry] : work) {
    if (entry.calls == 0) continue;
    const double calls = double(entry.calls);
    const Op op{kind, entry.flops / calls, entry.bytes / calls, {0, 0, 0, dtype}};
    Device plain = device;
    plain.units = 0;
    seconds += calls * std::max(seconds_of(op, plain, software),
                                software.host_op_seconds * kernels_of(op, software));
  }
  return seconds;
}

}  // namespace tessera::planner
