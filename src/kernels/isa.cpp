#include "kernels/isa.h"

#include <cstdlib>

#include "base/fail.h"
#include "kernels/cpuid.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::kernels {
namespace {

constexpr Isa kAll[] = {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx};

#if defined(__x86_64__)
// Linux grants tile registers on request, once for each process; old kernels and some sandboxes
// refuse.
bool tiles_granted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !cpuid_bit(1, 0, 'c', 29))
    return Isa::reference;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (!avx512) return Isa::avx2;
  const bool amx = cpuid_bit(7, 1, 'a', 5) && cpuid_bit(7, 0, 'd', 22) &&
                   cpuid_bit(7, 0, 'd', 24) && cpuid_bit(7, 0, 'd', 25);
  return amx && tiles_granted() ? Isa::amx : Isa::avx512;
}
bool detect_avx_vnni() { return detected_isa() >= Isa::avx2 && cpuid_bit(7, 1, 'a', 4); }
#else
Isa detect() { return Isa::reference; }
bool detect_avx_vnni() { return false; }
#endif

Isa chosen() {
  const char* name = std::getenv("TESSERA_ISA");
  return name && *name ? parse_isa(name, detected_isa()) : detected_isa();
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::reference: return "reference";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::amx: return "amx";
  }
  return "?";
}

Isa parse_isa(std::string_view name, Isa best) {
  for (Isa isa : kAll) {
    if (name != name_of(isa)) continue;
    require(isa <= best, ErrorCode::usage,
            "TESSERA_ISA={}: this machine has at most {}; choose that or a weaker set", name,
            name_of(best));
    return isa;
  }
  fail(ErrorCode::usage, "TESSERA_ISA={}: expected reference, avx2, avx512 or amx", name);
}

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

bool has_avx_vnni() {
  static const bool has = detect_avx_vnni();
  return has;
}

Isa active_isa() {
  static const Isa isa = chosen();
  return isa;
}

IsaList available_isas() {
  IsaList list{};
  for (Isa isa : kAll)
    if (isa <= detected_isa()) list.items[list.count++] = isa;
  return list;
}

}  // namespace tessera::kernels
