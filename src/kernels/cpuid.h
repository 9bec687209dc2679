#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace tessera::kernels {

// gcc 12's __builtin_cpu_supports lacks AVX512_BF16 and AMX, clang 14's lacks F16C.
inline bool cpuid_bit(unsigned leaf, unsigned subleaf, char reg, int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d)) return false;
  return (reg == 'a' ? a : reg == 'c' ? c : d) >> bit & 1;
}

}  // namespace tessera::kernels
#endif
