#include "load/nibble_blocks.h"

#include <atomic>
#include <cmath>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::load {
namespace {

using tensor::BFloat16;
using tensor::BlockFormat;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kBytes = 18;  // bytes of a block: a scale in f16, then nibbles of 0 to 15
constexpr int64_t kHalf = 8;    // bytes of neighbours of a group's first or last 16 elements

// Low nibbles hold the first 16 elements, high nibbles the last: repacks neighbours, minus 8.
void turn(const uint8_t* q, uint8_t* to) {
  for (int64_t i = 0; i < kHalf; ++i) {
    const unsigned first = q[2 * i], second = q[2 * i + 1];
    to[i] = static_cast<uint8_t>(((first & 15) | (second & 15) << 4) ^ 0x88);
    to[kHalf + i] = static_cast<uint8_t>((first >> 4 | (second >> 4) << 4) ^ 0x88);
  }
}

}  // namespace

bool has_nibble_blocks(const TensorEntry& entry) {
  return entry.format == BlockFormat::q4_0 && !entry.scales && entry.sizes.size() == 2;
}

ops::StoredMatrix nibbles_of(const TensorFile& file, const std::string& name) {
  const TensorEntry& entry = file.entry(name);
  const int64_t n = entry.sizes[0], k = entry.sizes[1], groups = k / ops::kGroupElements;
  const tensor::Uncounted aside(tensor::Counts::work);
  const auto make = [](const tensor::Shape& shape, DType dtype) {
    return Tensor::empty(shape, dtype, tensor::Device::cpu, tensor::MemoryClass::weights);
  };
  const Tensor blocks = make({entry.stored_bytes()}, DType::u8);
  file.read_stored(name, blocks.data<std::byte>());
  ops::StoredMatrix matrix(make({n, k / 2}, DType::u8), make({n, groups}, DType::bf16));
  std::atomic<bool> finite = true;
  tensor::parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    bool fine = true;
    for (int64_t r = begin; r < end; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        const uint8_t* const block = blocks.data<uint8_t>() + (r * groups + g) * kBytes;
        const float scale =
            to_float(tensor::Float16{static_cast<uint16_t>(block[0] | block[1] << 8)});
        fine = fine && std::isfinite(scale);
        matrix.scales.row<BFloat16>(r)[g] = tensor::to_bfloat16(scale);
        turn(block + 2, matrix.values.row<uint8_t>(r) + g * ops::kGroupElements / 2);
      }
    if (!fine) finite = false;
  });
  require(finite, ErrorCode::model,
          "{}: tensor {} (Q4_0) holds a scale that is infinite or no number; the file is damaged: "
          "download or export it again",
          file.path(), base::printable(name));
  return matrix;
}

}  // namespace tessera::load
