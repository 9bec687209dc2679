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

double filled_share(const Op& op, const std::string& curve, const Device& device) {
  if (curve == "matmul") return filled(tiles(op.size.rows) * tiles(op.size.columns), device.units);
  if (curve != "attention" || op.size.depth <= 0) return 1;
  const int64_t heads = std::max<int64_t>(op.size.columns / op.size.depth, 1);
  const double multiple = device.head_multiple;
  const double padded = std::ceil(double(op.size.depth) / multiple) * multiple;
  return filled(tiles(op.size.rows) * heads, device.units) * double(op.size.depth) / padded;
}

}  // namespace

double seconds_of(const Op& op, const Device& device, const Software& software) {
  const std::string curve = curve_name(op.kind);
  const double bytes = op.bytes * (curve.empty() ? software.element_bytes : 1);
  double seconds = 0;
  if (bytes > 0) seconds = bytes / (device.memory_bandwidth * share(device, "memory", bytes));
  if (!curve.empty() && op.flops > 0)
    seconds =
        std::max(seconds, op.flops / (peak(device, op.size.dtype) * share(device, curve, op.flops) *
                                      filled_share(op, curve, device)));
  return seconds + device.op_seconds;
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
    seconds += calls * std::max(seconds_of(op, plain, software), software.host_op_seconds);
  }
  return seconds;
}

}  // namespace tessera::planner
