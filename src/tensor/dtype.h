#pragma once

#include <bit>
#include <cstdint>

namespace tessera::tensor {

/// Element type of a tensor.
enum class DType : uint8_t { f32, bf16, f16, i32, i64, u8, i8 };

/// Bytes of an element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::i64: return 8;
    case DType::u8:
    case DType::i8: return 1;
  }
  return 0;
}

/// "f32", "bf16", ... in the spelling of the command line.
const char* name_of(DType dtype);

/// Whether the values are floating point.
constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// A bfloat16 in memory: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};
/// An IEEE half in memory.
struct Float16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float to_float(Float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, mantissa = x.bits & 0x3ffu;
  const uint32_t exponent = x.bits >> 10 & 0x1fu;
  if (exponent == 0) {  // zero and subnormals: exact as a product
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

/// Round to nearest even; NaN stays NaN.
inline BFloat16 to_bfloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
/// Round to nearest even; overflow becomes infinity.
Float16 to_float16(float x);

/// float -> T and back, for code typed over element types.
template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BFloat16 from_float<BFloat16>(float x) {
  return to_bfloat16(x);
}
template <>
inline Float16 from_float<Float16>(float x) {
  return to_float16(x);
}

}  // namespace tessera::tensor
