#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/isa.h"

namespace tessera::kernels {

/// Vector unit for bf16 products: fused multiply-adds of f32 after widening, or dot products of
/// pairs. CPUs with AVX512_BF16 have both; the faster depends on the CPU, by a factor of two.
enum class Bf16Path : uint8_t { fma, dot };
/// Names for TESSERA_UNIT: "fma", "dot".
const char* name_of(Bf16Path path);
/// True if this CPU has AVX512_BF16: dot products of bf16, and an instruction for rounding.
bool has_dot_products();

/// Parses the name of a unit. Throws Error(usage) for an unknown name, or a unit not supported by
/// `isa`.
Bf16Path parse_bf16_path(std::string_view name, Isa isa);

/// The faster unit of this CPU: measured once for each process, in some milliseconds.
Bf16Path measured_bf16_path();
/// Unit used by kernels: the unit named by TESSERA_UNIT, read once, else the unit set by
/// use_bf16_path(), else measured_bf16_path(); `fma` if active_isa() is below avx512 or
/// has_dot_products() is false. Throws Error(usage) as parse_bf16_path() does, and for `dot`
/// without dot products.
Bf16Path active_bf16_path();
/// Sets the unit measured by another process of the run, so that all processes have the same bits;
/// call before the first active_bf16_path().
void use_bf16_path(Bf16Path path);

}  // namespace tessera::kernels
