#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/isa.h"

namespace tessera::kernels {

/// What multiplies bf16 in vectors: fused multiply-adds of f32, after widening, or dot products of
/// pairs. CPUs with AVX512_BF16 have both, one twice as fast as the other, and not all the same
/// one.
enum class Unit : uint8_t { fma, dot };
/// "fma", "dot": the names that TESSERA_UNIT takes.
const char* name_of(Unit unit);
/// Whether this CPU has AVX512_BF16: dot products of bf16, and an instruction that rounds to it.
bool has_dot_products();

/// The unit of that name. Throws Error(usage) for an unknown name, or one that `isa` lacks.
Unit parse_unit(std::string_view name, Isa isa);

/// The faster unit of this CPU: measured once a process, in some milliseconds.
Unit measured_unit();
/// What kernels take: the one that TESSERA_UNIT names, read once, else that of take_unit(), else
/// measured_unit(); `fma` where active_isa() is below avx512 or has_dot_products() is false. Throws
/// Error(usage) as parse_unit() does, and for `dot` without dot products.
Unit active_unit();
/// What another process of the run has measured, so that all have the same bits; before the first
/// active_unit().
void take_unit(Unit unit);

}  // namespace tessera::kernels
