#include "tensor/dtype.h"

namespace tessera::tensor {

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::i8: return "i8";
  }
  return "?";
}

Float16 to_float16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = u & 0x7fffffffu;
  const uint16_t sign = static_cast<uint16_t>(u >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: the float adder rounds for us
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xffffu))};
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1) - (112u << 23);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

}  // namespace tessera::tensor
