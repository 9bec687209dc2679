#include "kernels/bf16_path.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/fail.h"
#include "base/printable.h"
#include "kernels/cpuid.h"
#include "kernels/probe.h"

namespace tessera::kernels {
namespace {

constexpr double kClear = 1.25;  // factor beyond the noise of equal rates

constexpr int kTimes = 6;  // repetitions, so that an interruption does not affect all
constexpr auto kBetween = std::chrono::microseconds(300);

std::atomic<int> path_of_run{-1};

Bf16Path measure() {
  if (!has_dot_products()) return Bf16Path::fma;
  double dot = 0, fma = 0;
  for (int i = 0; i < kTimes; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetween);
    const Limits limits = probe_vectors();
    dot = std::max(dot, limits.bf16_dot), fma = std::max(fma, limits.f32_fma);
  }
  return dot > kClear * fma ? Bf16Path::dot : Bf16Path::fma;
}

Bf16Path choose_path() {
  const char* name = std::getenv("TESSERA_UNIT");
  if (name && *name) {
    const Bf16Path path = parse_bf16_path(name, active_isa());
    require(path == Bf16Path::fma || has_dot_products(), ErrorCode::usage,
            "TESSERA_UNIT={}: this CPU has no dot products of bf16; choose fma", name);
    return path;
  }
  if (active_isa() < Isa::avx512 || !has_dot_products()) return Bf16Path::fma;
  const int path = path_of_run;
  return path < 0 ? measured_bf16_path() : static_cast<Bf16Path>(path);
}

}  // namespace

bool has_dot_products() {
#if defined(__x86_64__)
  static const bool has = cpuid_bit(7, 1, 'a', 5);
  return has;
#else
  return false;
#endif
}

const char* name_of(Bf16Path path) { return path == Bf16Path::dot ? "dot" : "fma"; }

Bf16Path parse_bf16_path(std::string_view name, Isa isa) {
  if (name == name_of(Bf16Path::fma)) return Bf16Path::fma;
  require(name == name_of(Bf16Path::dot), ErrorCode::usage, "TESSERA_UNIT={}: expected fma or dot",
          base::printable(name));
  require(isa >= Isa::avx512, ErrorCode::usage,
          "TESSERA_UNIT={}: {} has no dot products of bf16; choose fma", name, name_of(isa));
  return Bf16Path::dot;
}

Bf16Path measured_bf16_path() {
  static const Bf16Path path = measure();
  return path;
}

void use_bf16_path(Bf16Path path) { path_of_run = static_cast<int>(path); }

Bf16Path active_bf16_path() {
  static const Bf16Path path = choose_path();
  return path;
}

}  // namespace tessera::kernels
