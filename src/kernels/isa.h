#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::kernels {

/// Instruction sets, weakest first. `reference` is plain C++ and defines correct.
enum class Isa : uint8_t { reference, avx2, avx512, amx };
const char* name_of(Isa isa);

/// The best set that this CPU and operating system grant (AMX permission is asked once), or the one
/// that TESSERA_ISA names. Throws Error(usage) for an unknown name or one that the CPU lacks.
/// `avx512` means AVX-512 F/BW/DQ/VL with AVX512_BF16.
Isa active_isa();
/// The best set this machine has, whatever TESSERA_ISA says.
Isa detected_isa();
/// Every set this machine can run, weakest first; tests are typed over it.
/// (Declared with std::initializer-free types to keep this header light.)
struct IsaList {
  Isa items[4];
  int count;
  const Isa* begin() const { return items; }
  const Isa* end() const { return items + count; }
};
IsaList available_isas();

}  // namespace tessera::kernels
