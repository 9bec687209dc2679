#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::kernels {

/// Instruction sets, weakest first. `reference` is plain C++ and defines correct results.
enum class Isa : uint8_t { reference, avx2, avx512, amx };
/// Names for TESSERA_ISA: "reference", "avx2", "avx512", "amx".
const char* name_of(Isa isa);
/// Parses the name of a set. Throws Error(usage) for an unknown name or a set stronger than `best`.
Isa parse_isa(std::string_view name, Isa best);

/// The best set supported by CPU and operating system (AMX permission is requested once), or the
/// set named by TESSERA_ISA, read once. Throws Error(usage) for an unknown or unsupported name.
/// `avx512` means AVX-512 F/BW/DQ/VL with VNNI; has_dot_products() reports AVX512_BF16.
Isa active_isa();
/// The best set of this machine, ignoring TESSERA_ISA.
Isa detected_isa();

/// True if this CPU has AVX-VNNI: integer dot products without AVX-512.
bool has_avx_vnni();

/// Some instruction sets, for range-based loops.
struct IsaList {
  Isa items[4];
  int count;
  const Isa* begin() const { return items; }
  const Isa* end() const { return items + count; }
};
/// All sets supported by this machine, weakest first; typed tests use this list.
IsaList available_isas();

}  // namespace tessera::kernels
