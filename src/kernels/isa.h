#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::kernels {

/// Instruction sets, weakest first. `reference` is plain C++ and defines correct.
enum class Isa : uint8_t { reference, avx2, avx512, amx };
/// "reference", "avx2", "avx512", "amx": the names that TESSERA_ISA takes.
const char* name_of(Isa isa);
/// The set of that name. Throws Error(usage) for an unknown name or a set stronger than `best`.
Isa parse_isa(std::string_view name, Isa best);

/// The best set that this CPU and operating system grant (AMX permission is asked once), or the one
/// that TESSERA_ISA names, read once. Throws Error(usage) for an unknown name or one that the CPU
/// lacks. `avx512` means AVX-512 F/BW/DQ/VL with VNNI; has_dot_products() tells of AVX512_BF16.
Isa active_isa();
/// The best set this machine has, whatever TESSERA_ISA says.
Isa detected_isa();

/// Whether this CPU has AVX-VNNI: products of whole numbers that add up without AVX-512.
bool has_avx_vnni();

/// Some instruction sets, for range-based loops.
struct IsaList {
  Isa items[4];
  int count;
  const Isa* begin() const { return items; }
  const Isa* end() const { return items + count; }
};
/// Every set this machine can run, weakest first; tests are typed over it.
IsaList available_isas();

}  // namespace tessera::kernels
