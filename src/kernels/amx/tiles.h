#pragma once

#if defined(__x86_64__)
#include <cstddef>
#include <cstdint>

namespace tessera::kernels::amx {

/// The tile instructions, a function each; tests replace them by a model. Tiles 0 to 3 hold sums of
/// 16 x 16 words, 4 and 5 rows of x, 6 and 7 columns of W: 16 rows of 64 bytes each.
struct Tiles {
  using Sum = float;
  /// Tiles belong to a thread, and live tiles cost 8 KB at a context switch, so they are released
  /// at the end.
  class Scope {
   public:
    Scope() {
      static constexpr Palette kPalette;
      asm volatile("ldtilecfg %0" ::"m"(kPalette));  // gcc 12's intrinsic passes 8 of 64 bytes
    }
    ~Scope() { asm volatile("tilerelease" ::: "memory"); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct alignas(64) Palette {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
  };

  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// No memory clobber: the operands were written before the sweep, ahead of the fence().
  template <int tile>
  static void load(const std::byte* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(tile));
  }
  /// Same with a non-temporal hint: the data passes through L1.
  template <int tile>
  static void load_once(const std::byte* from) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(tile));
  }
  /// sums += x w over sixteen words of k, each a pair of bf16.
  template <int sums, int x, int w>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(x), "i"(w));
  }
  template <int tile>
  static void store(void* to, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride_bytes), "i"(tile)
                 : "memory");
  }
  static void fence() { asm volatile("" ::: "memory"); }
};

/// Tiles of int8, of the same size and place.
struct Int8Tiles : Tiles {
  using Sum = int32_t;
  /// sums += x w over sixteen words of k, each four int8.
  template <int sums, int x, int w>
  static void multiply() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(x), "i"(w));
  }
};

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
