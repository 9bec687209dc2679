#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/isa.h"

namespace tessera::kernels {

/// Vector unit for bf16 products: fused multiply-adds of f32 after widening, or dot products of
/// pairs. CPUs with AVX512_BF16 have both; the faster depends on the CPU, by a factor of two.
enum class Unit : uint8_t { fma, dot };
/// Names for TESSERA_UNIT: "fma", "dot".
const char* name_of(Unit unit);
/// True if this CPU has AVX512_BF16: dot products of bf16, and an instruction for rounding.
bool has_dot_products();

/// Parses the name of a unit. Throws Error(usage) for an unknown name, or a unit not supported by
/// `isa`.
Unit parse_unit(std::string_view name, Isa isa);

/// The faster unit of this CPU: measured once for each process, in some milliseconds.
Unit measured_unit();
/// Unit used by kernels: the unit named by TESSERA_UNIT, read once, else the unit set by
/// take_unit(), else measured_unit(); `fma` if active_isa() is below avx512 or has_dot_products()
/// is false. Throws Error(usage) as parse_unit() does, and for `dot` without dot products.
Unit active_unit();
/// Sets the unit measured by another process of the run, so that all processes have the same bits;
/// call before the first active_unit().
void take_unit(Unit unit);

}  // namespace tessera::kernels
