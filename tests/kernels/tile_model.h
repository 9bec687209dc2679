#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// The tile instructions in software, as Intel's manual writes them: products of pairs of bf16 in
/// f32, even and odd elements of k summed apart and then together, subnormals flushed. A load is
/// checked to happen inside a Scope only.
struct TileModel {
  using Sum = float;
  class Scope {
   public:
    Scope() { configured() = true; }
    ~Scope() { configured() = false; }
  };
  template <int tile>
  static void zero() {
    std::memset(at(tile), 0, 1024);
  }
  template <int tile>
  static void load(const std::byte* from) {
    std::memcpy(at(tile), from, configured() ? 1024 : 0);
  }
  template <int tile>
  static void load_once(const std::byte* from) {
    load<tile>(from);
  }
  template <int sums, int x, int w>
  static void multiply() {
    const auto* a = reinterpret_cast<const tensor::BFloat16*>(at(x));
    const auto* b = reinterpret_cast<const tensor::BFloat16*>(at(w));
    auto* c = reinterpret_cast<float*>(at(sums));
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        float sum[2] = {0, 0};
        for (int k = 0; k < 16; ++k)
          for (int i = 0; i < 2; ++i)
            sum[i] = flush(std::fma(flush(to_float(a[m * 32 + k * 2 + i])),
                                    flush(to_float(b[k * 32 + n * 2 + i])), sum[i]));
        c[m * 16 + n] = flush(c[m * 16 + n] + flush(sum[0] + sum[1]));
      }
  }
  template <int tile>
  static void store(void* to, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * stride_bytes, at(tile) + r * 64, 64);
  }
  static void fence() {}

 protected:
  static std::byte* at(int tile) {
    alignas(64) static thread_local std::byte tiles[8][1024];
    return tiles[tile];
  }

 private:
  static float flush(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  static bool& configured() {
    static thread_local bool on = false;
    return on;
  }
};

/// Tiles of int8 (TDPBSSD): sums of products of four signed bytes, in int32.
struct Int8TileModel : TileModel {
  using Sum = int32_t;
  template <int sums, int x, int w>
  static void multiply() {
    const auto* a = reinterpret_cast<const int8_t*>(at(x));
    const auto* b = reinterpret_cast<const int8_t*>(at(w));
    auto* c = reinterpret_cast<int32_t*>(at(sums));
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n)
        for (int k = 0; k < 16; ++k)
          for (int i = 0; i < 4; ++i)
            c[m * 16 + n] += int32_t{a[m * 64 + k * 4 + i]} * b[k * 64 + n * 4 + i];
  }
};

}  // namespace tessera::kernels
