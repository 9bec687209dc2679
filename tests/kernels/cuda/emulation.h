#pragma once

// Runs the sources of kernels/cuda on the CPU: blocks in order, the threads of a block as fibers
// with barriers and warp instructions. Include this first, then a kernel's .cu file: its functions
// are then in namespace tessera::kernels::emulated.
//
// The emulation makes undefined behavior visible: shared memory starts as NaNs, asynchronous copies
// happen as late as allowed, and threads run forwards or backwards (emulation::backwards), so a
// missing barrier changes results.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/device_scratch.h"
#include "tensor/launches.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

#define TESSERA_EMULATED_DEVICE
#define TESSERA_UNROLL
#define TESSERA_KEEP_ROLLED
#define TESSERA_UNROLL_SOME
#define __global__
#define __device__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
// The same sources in a namespace of their own.
#define cuda emulated

namespace tessera::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

/// Limit of bytes that a lane can show to its warp at once.
constexpr size_t kSlot = 64;
using Slots = std::array<std::array<std::byte, kSlot>, 32>;

/// Threads of a block run in falling instead of rising order, and boxes arrive at the request.
inline bool backwards = false;

/// Shared memory of a block in bytes; as on Hopper.
inline int most_shared = 227 * 1024;
/// Blocks that run at once, as told to programs.
inline int resident_blocks = 12;

/// Opens (true) and closes the memory of the device around running code, if necessary.
inline std::function<void(bool)> reach;
class Reach {
 public:
  Reach() {
    if (reach) reach(true);
  }
  ~Reach() {
    if (reach) reach(false);
  }
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
};

/// Runs a block of `threads` threads. Throws std::logic_error if they would hang.
void run_block(int threads, int64_t shared_bytes, const std::function<void()>& body);

/// An order of blocks that run at once, and of what they see of each other. Each block gets a share
/// of the turns drawn from the seed, some almost none; blocks change at accesses to shared words.
struct Order {
  enum class Kind { random, first_starves, last_starves, even } kind = Kind::random;
  uint32_t seed = 1;
  int resident = 0;  ///< blocks that run at once; the next starts when one has ended. 0: all
};
inline Order order;
/// Turns of the last grid of blocks.
inline int64_t turns_taken = 0;
/// Blocks of a launch.
struct Blocks {
  int count = 0, threads = 0;
  int64_t shared_bytes = 0;
  std::function<void()> body{};
};
/// Runs all blocks at once; those of several launches are on as many GPUs.
void run_grids(const std::vector<Blocks>& launches);
/// Collects launches of blocks that run at once, until run(), as those of several GPUs.
class Together {
 public:
  Together() { collecting = this; }
  ~Together() { collecting = nullptr; }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  void add(Blocks launch) { launches_.push_back(std::move(launch)); }
  void run() {
    const Reach reaches;
    run_grids(std::exchange(launches_, {}));
  }
  static inline Together* collecting = nullptr;

 private:
  std::vector<Blocks> launches_;
};
/// Other blocks may run now; `wait`: they do.
void touch_words(bool wait);
/// A store that other blocks see after the next release of this block, or at any time before.
void store_late(void* to, const void* from);
/// Makes late stores visible: those of this thread, and of others before a block barrier.
void release_stores();
/// Waits for all threads of the block, or of the warp.
void wait_for_block();
void wait_for_warp();
/// Shows `bytes` of `value` to the warp, and returns the values of all its lanes.
const Slots& show(const void* value, size_t bytes);
unsigned char* dynamic_shared();
int lane();

/// The place in a rank's memory of an address in the running rank's, for puts to other hosts.
inline std::function<std::byte*(const void* own, int rank)> place_there;

/// Writes 16 bytes of shared memory for the running thread.
void store_line(void* to, const void* from);

/// Asynchronous copies of the running thread.
void copy_later(void* to, const void* from, bool valid);
void commit_copies();
void finish_copies(int left);

template <class T>
T of_lane(const Slots& slots, int from) {
  T value;
  std::memcpy(&value, slots[static_cast<size_t>(from)].data(), sizeof(T));
  return value;
}

}  // namespace tessera::emulation

inline tessera::emulation::Index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline void __syncthreads() { tessera::emulation::wait_for_block(); }
inline void __syncwarp() { tessera::emulation::wait_for_warp(); }
template <class T>
T atomicAdd(T* at, T value) {  // threads of a block never run at once
  return std::exchange(*at, *at + value);
}
template <class T>
T atomicMax(T* at, T value) {
  return std::exchange(*at, *at < value ? value : *at);
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return tessera::emulation::of_lane<T>(tessera::emulation::show(&value, sizeof(T)), from % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const auto& slots = tessera::emulation::show(&value, sizeof(T));
  return tessera::emulation::of_lane<T>(slots, tessera::emulation::lane() ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int by) {
  const auto& slots = tessera::emulation::show(&value, sizeof(T));
  const int from = tessera::emulation::lane() - by;
  return from < 0 ? value : tessera::emulation::of_lane<T>(slots, from);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const auto& slots = tessera::emulation::show(&predicate, sizeof(int));
  unsigned bits = 0;
  for (int l = 0; l < 32; ++l)
    bits |= unsigned{tessera::emulation::of_lane<int>(slots, l) != 0} << l;
  return bits;
}
inline unsigned __match_any_sync(unsigned, int value) {
  const auto& slots = tessera::emulation::show(&value, sizeof(int));
  unsigned bits = 0;
  for (int l = 0; l < 32; ++l)
    bits |= unsigned{tessera::emulation::of_lane<int>(slots, l) == value} << l;
  return bits;
}

namespace tessera::kernels {

[[noreturn]] void unsupported(const char* kernel, const char* what, int64_t value,
                              const char* expected);

namespace cuda {

inline float half_bits_to_float(uint16_t bits) { return to_float(tensor::Float16{bits}); }
inline uint16_t float_to_half_bits(float value) { return tensor::to_float16(value).bits; }
inline uint16_t float_to_bf16_bits(float value) { return tensor::to_bfloat16(value).bits; }
inline uint32_t pack_bf16(float low, float high) {
  return float_to_bf16_bits(low) | uint32_t{float_to_bf16_bits(high)} << 16;
}

inline void after_those_before() {}

inline uint64_t load_word(const uint64_t* word) {
  emulation::touch_words(false);
  return *word;
}
inline void acquire_words() {}
inline uint64_t load_acquire(const uint64_t* word) { return load_word(word); }
inline void store_release(uint64_t* word, uint64_t value) {
  emulation::release_stores();
  *word = value;
  emulation::touch_words(false);
}
inline void store_unordered(uint64_t* word, uint64_t value) {
  *word = value;
  emulation::touch_words(false);
}
inline void post_word(uint64_t* shared, uint64_t value) { *shared = value; }
inline uint64_t posted_word(const uint64_t* shared) { return *shared; }
inline void put_16(void* to, uint4 value) { emulation::store_late(to, &value); }
inline void pause() { emulation::touch_words(true); }
inline void flag_far(uint64_t* flag, uint64_t value, int rank) {
  store_release(reinterpret_cast<uint64_t*>(emulation::place_there(flag, rank)), value);
}
// Reads what others wrote before the last barrier, and arrives in any order before the flag.
inline void put_far(std::byte* to, const std::byte* from, int64_t bytes, uint64_t* flag,
                    uint64_t value, int rank) {
  emulation::release_stores();
  for (int64_t i = 0; i < bytes; i += 16)
    emulation::store_late(emulation::place_there(to + i, rank), from + i);
  flag_far(flag, value, rank);
}

inline float exp2_of(float x) {
  const float value = std::exp2(x);
  return value < 0x1p-126f ? 0 : value;
}

inline float reciprocal_of(float x) { return 1 / x; }

inline void store_shared(void* shared, uint4 word) { emulation::store_line(shared, &word); }
inline void cp_async_16(void* shared, const void* global, bool valid) {
  emulation::copy_later(shared, global, valid);
}
inline void cp_async_commit() { emulation::commit_copies(); }
template <int Left>
void cp_async_wait() {
  emulation::finish_copies(Left);
}

inline void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto& rows = emulation::show(&row, sizeof(row));
  for (int m = 0; m < 4; ++m)
    std::memcpy(&out[m],
                static_cast<const std::byte*>(
                    emulation::of_lane<const void*>(rows, 8 * m + emulation::lane() / 4)) +
                    4 * (emulation::lane() % 4),
                4);
}
inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  const auto& rows = emulation::show(&row, sizeof(row));
  const int column = emulation::lane() / 4, first = 2 * (emulation::lane() % 4);
  for (int m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i)
      std::memcpy(
          &pair[i],
          static_cast<const std::byte*>(emulation::of_lane<const void*>(rows, 8 * m + first + i)) +
              2 * column,
          2);
    out[m] = pair[0] | uint32_t{pair[1]} << 16;
  }
}

// A product of 16-bit elements; `number` widens one.
inline void multiply_halves(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                            float (*number)(uint16_t)) {
  struct Operands {
    uint32_t a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto& slots = emulation::show(&mine, sizeof(mine));
  const int g = emulation::lane() / 4, t = emulation::lane() % 4;
  const auto half = [&](uint32_t word, int which) {
    return number(static_cast<uint16_t>(which ? word >> 16 : word));
  };
  for (int k = 0; k < 16; ++k) {
    const int owner = k % 8 / 2;  // lane % 4 of the lanes with this k
    float row[2], column[2];
    for (int i = 0; i < 2; ++i) {
      const auto from_a = emulation::of_lane<Operands>(slots, 4 * g + owner);
      row[i] = half(from_a.a[i + 2 * (k / 8)], k % 2);
      const auto from_b = emulation::of_lane<Operands>(slots, 4 * (2 * t + i) + owner);
      column[i] = half(from_b.b[k / 8], k % 2);
    }
    for (int i = 0; i < 4; ++i) d[i] += row[i / 2] * column[i % 2];
  }
}
inline float bf16_bits_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_halves(d, a, b0, b1, bf16_bits_to_float);
}
inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_halves(d, a, b0, b1, half_bits_to_float);
}

inline unsigned char* dynamic_shared() { return emulation::dynamic_shared(); }

struct Launch;
template <class... Params, class... Args>
void launch(const char*, void (*kernel)(Params...), const Launch& shape, Args... args);

/// Memory of a single call; starts as NaNs.
class Scratch : public DeviceScratch {
 public:
  explicit Scratch(int64_t bytes) : DeviceScratch(bytes) {
    const emulation::Reach reach;
    if (bytes > 0) std::memset(as<void>(), 0xff, static_cast<size_t>(bytes));
  }
};

inline int multiprocessors() { return 3; }
template <class... Params>
int resident_blocks(const char*, void (*)(Params...), const Launch&) {
  return emulation::resident_blocks;
}
inline int most_shared() { return emulation::most_shared; }

}  // namespace cuda
}  // namespace tessera::kernels

#include "kernels/cuda/emulated_warpgroup.h"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const Launch& shape, Args... args) {
  if (shape.blocks > 0 && shape.rows > 0) tensor::count_launch(name);
  const std::tuple<Params...> values(args...);
  const emulation::Reach reach;
  gridDim = {static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.rows), 1};
  blockDim = {static_cast<unsigned>(shape.threads), 1, 1};
  if (shape.resident) {
    emulation::Blocks all{static_cast<int>(shape.blocks), shape.threads, shape.shared,
                          [kernel, values] { std::apply(kernel, values); }};
    if (auto* const others = emulation::Together::collecting) return others->add(std::move(all));
    return emulation::run_grids({std::move(all)});
  }
  for (unsigned y = 0; y < gridDim.y; ++y)
    for (unsigned x = 0; x < gridDim.x; ++x) {
      blockIdx = {x, y, 0};
      emulation::run_block(shape.threads, shape.shared, [&] { std::apply(kernel, values); });
    }
}

}  // namespace tessera::kernels::cuda
