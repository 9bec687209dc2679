#include "kernels/unit.h"

#include <cstdlib>

#include "base/fail.h"
#include "base/printable.h"
#include "kernels/probe.h"

namespace tessera::kernels {
namespace {

constexpr double kClear = 1.25;  // what a busy moment does not make of equal rates

Unit measure() {
  const Limits limits = probe_vectors();
  return limits.bf16_dot > kClear * limits.f32_fma ? Unit::dot : Unit::fma;
}

Unit chosen() {
  const char* name = std::getenv("TESSERA_UNIT");
  if (name && *name) return parse_unit(name, active_isa());
  return active_isa() < Isa::avx512 ? Unit::fma : measured_unit();
}

}  // namespace

const char* name_of(Unit unit) { return unit == Unit::dot ? "dot" : "fma"; }

Unit parse_unit(std::string_view name, Isa isa) {
  if (name == name_of(Unit::fma)) return Unit::fma;
  require(name == name_of(Unit::dot), ErrorCode::usage, "TESSERA_UNIT={}: expected fma or dot",
          base::printable(name));
  require(isa >= Isa::avx512, ErrorCode::usage,
          "TESSERA_UNIT={}: {} has no dot products of bf16; choose fma", name, name_of(isa));
  return Unit::dot;
}

Unit measured_unit() {
  static const Unit unit = measure();
  return unit;
}

Unit active_unit() {
  static const Unit unit = chosen();
  return unit;
}

}  // namespace tessera::kernels
