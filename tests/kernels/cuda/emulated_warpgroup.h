#pragma once

// The functions of kernels/cuda/warpgroup.cuh on the CPU: included by emulation.h. Boxes arrive
// only when no thread can continue without them, the last request first (emulation::backwards: at
// once). Products are computed, and their sums visible, only at a wait: until then their input
// registers may not change. Tiles are read as by the hardware: by descriptor, through the swizzle,
// in documented layouts only, and only after a fence made the bytes visible.

#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/cuda/row_map.h"

namespace tessera::emulation {

/// Whether the emulated device multiplies by warpgroups.
inline bool warpgroups = false;

/// Lets other threads run until `ready` says yes.
void wait_until(std::function<bool()> ready);
/// Work of the copy engine.
void engine_later(std::function<void()> work);
/// Products of the running thread: into `sums` [count], with `left` [4] of their left operand in
/// registers, or null. Both must not change until the wait for the product.
void product_later(std::function<void()> work, float* sums, int count, const uint32_t* left);
/// Makes registers written before visible to products.
void begin_products();
void commit_products();
void finish_products(int left);
/// A named barrier of the block.
void wait_for_threads(int name, int threads);
void arrive_for_threads(int name, int threads);
/// Makes the running thread's writes to shared memory visible to products and the copy engine.
void show_to_engine();
/// Marks bytes written by the copy engine.
void engine_wrote(const void* shared, int64_t bytes);
/// Throws if these 16 bytes, about to be accessed by products or the engine, have writes of a
/// thread without a fence.
void check_shown(const void* line);
/// The running thread shows the copy engine rows that others wrote; check_rows_shown() throws
/// unless it has since its last wait for others.
void show_rows();
void check_rows_shown();
/// A barrier unknown to the copy engine so far.
void barrier_made(uint64_t* barrier);
void make_barriers_known();
/// Where shared memory begins: a multiple of 1,024.
unsigned char* shared_base();

constexpr uint8_t kBarrier = 77, kFreshBarrier = 76;
/// A barrier with a count of bytes, in eight bytes of shared memory.
struct Phases {
  int32_t bytes;
  uint8_t waiting, arrivals, phase, valid;
  void check() {
    if (waiting > 0 || bytes != 0) return;
    phase ^= 1;
    waiting = arrivals;
  }
};
template <class F>
void change(uint64_t* barrier, const F& f) {
  auto p = std::bit_cast<Phases>(*barrier);
  if (p.valid == kFreshBarrier) throw std::logic_error("a barrier that was not made known");
  if (p.valid != kBarrier) throw std::logic_error("a barrier that was not initialised");
  f(p);
  p.check();
  *barrier = std::bit_cast<uint64_t>(p);
}

/// Elements of a tile from (row, k) on, as many as are side by side in 16 bytes; turned: k is the
/// row of the tile, and only the first is valid.
inline std::array<uint16_t, 8> tile_line(uint64_t descriptor, int row, int k, bool turned) {
  const auto field = [&](int shift) { return int64_t(descriptor >> shift & 0x3fff) << 4; };
  if (descriptor >> 62 != 1) throw std::logic_error("a tile that is not swizzled by 128 bytes");
  const int64_t leading = field(16), eight = field(32);
  const int64_t at = turned ? row / 64 * leading + row % 64 * 2 + k / 8 * eight + k % 8 * 128
                            : row / 8 * eight + row % 8 * 128 + k * 2;
  const int64_t address = field(0) + at;
  const unsigned char* first = shared_base() + (address ^ (address >> 7 & 7) << 4);
  check_shown(first);
  std::array<uint16_t, 8> line{};
  std::memcpy(line.data(), first, turned ? 2 : 16);
  return line;
}
/// The elements (row, 0 .. 16), widened by `number`.
inline std::array<float, 16> tile_row(uint64_t descriptor, int row, bool turned,
                                      float (*number)(uint16_t)) {
  std::array<float, 16> values{};
  const size_t step = turned ? 1 : 8;
  for (size_t k = 0; k < values.size(); k += step) {
    const auto line = tile_line(descriptor, row, static_cast<int>(k), turned);
    for (size_t i = 0; i < step; ++i) values[k + i] = number(line[i]);
  }
  return values;
}

/// Throws if `columns` of a tile, or rows if turned, do not form a layout of PTX's ISA
/// (asynchronous warpgroup level matrices: canonical layouts, swizzled by 128 bytes).
inline void check_tile(uint64_t descriptor, int columns, bool turned) {
  const auto field = [&](int shift) { return int64_t(descriptor >> shift & 0x3fff) << 4; };
  const bool whole = turned ? field(0) % 1024 == 0 : field(0) % 1024 < 128 && field(0) % 32 == 0;
  if (!whole) throw std::logic_error("a tile that does not begin at eight rows of 128 bytes");
  if (field(32) != 1024) throw std::logic_error("a tile whose eight rows are not 1,024 bytes");
  if (columns % 8 != 0 || columns > 256) throw std::logic_error("a product of such a width");
  if (!turned) return;
  if (columns % 64 != 0) throw std::logic_error("a turned tile of no multiple of 64 columns");
  if (columns > 64 && field(16) % 1024 != 0)
    throw std::logic_error("64 columns of a turned tile that are not whole rows");
}

/// The result of row_map() and image_map(): element (c, i, j, k), with the byte strides of each
/// axis.
struct Map {
  const std::byte* data;
  std::array<int64_t, 4> sizes, strides;
  std::array<int, 4> box;
  int element;  // bytes; two of them are swizzled
};

}  // namespace tessera::emulation

namespace tessera::kernels::cuda {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) -
                               emulation::shared_base());
}
inline bool has_warpgroups() { return emulation::warpgroups; }

inline void barrier_init(uint64_t* barrier, int arrivals) {
  const auto count = static_cast<uint8_t>(arrivals);
  *barrier =
      std::bit_cast<uint64_t>(emulation::Phases{0, count, count, 0, emulation::kFreshBarrier});
  emulation::barrier_made(barrier);
}
inline void barriers_ready() { emulation::make_barriers_known(); }
inline void barrier_arrive(uint64_t* barrier) {
  emulation::change(barrier, [](emulation::Phases& p) {
    if (p.waiting == 0) throw std::logic_error("more arrive at a barrier than it counts");
    --p.waiting;
  });
}
inline void barrier_expect(uint64_t* barrier, int bytes) {
  emulation::change(barrier, [&](emulation::Phases& p) {
    if (p.waiting == 0) throw std::logic_error("more arrive at a barrier than it counts");
    p.bytes += bytes, --p.waiting;
  });
}
inline void barrier_wait(uint64_t* barrier, int parity) {
  emulation::wait_until([=] {
    const auto p = std::bit_cast<emulation::Phases>(*barrier);
    return p.phase != parity;
  });
}

inline void acquire_map(const RowMap&) {}
inline RowMap encoded(const void* data, const MapShape& shape) {
  if (const char* wrong = wrong_with(shape, reinterpret_cast<uintptr_t>(data)))
    throw std::logic_error(std::string("a tensor map that the driver would refuse: ") + wrong);
  emulation::Map map{static_cast<const std::byte*>(data),
                     {1, 1, 1, 1},
                     {shape.element, 0, 0, 0},
                     {1, 1, 1, 1},
                     shape.element};
  for (size_t i = 0; i < static_cast<size_t>(shape.rank); ++i) {
    map.sizes[i] = static_cast<int64_t>(shape.sizes[i]);
    map.box[i] = static_cast<int>(shape.box[i]);
    if (i > 0) map.strides[i] = static_cast<int64_t>(shape.strides[i - 1]);
  }
  RowMap made{};
  static_assert(sizeof(map) <= sizeof(made));
  std::memcpy(made.bytes, &map, sizeof(map));
  return made;
}
inline RowMap row_map(const char*, const void* data, int64_t stride, int64_t rows, int heads,
                      int head_dim, int box) {
  return encoded(data, row_map_shape(stride, rows, heads, head_dim, box));
}
inline RowMap byte_map(const char*, const void* data, int64_t rows, int k, int box) {
  return encoded(data, byte_map_shape(rows, k, box));
}
inline RowMap image_map(const char*, const void* data, const Images& x, int box_width,
                        int box_height) {
  return encoded(data, image_map_shape(x, box_width, box_height));
}
// Copies a box to shared memory, counted at a barrier; zeros outside of the map.
inline void load_at(void* to, const RowMap& made, uint64_t* barrier,
                    const std::array<int64_t, 4>& first) {
  for (const int64_t at : first)
    if (at < INT32_MIN || at > INT32_MAX) throw std::logic_error("a box at no place of 32 bits");
  emulation::Map map;
  std::memcpy(&map, made.bytes, sizeof(map));
  const bool swizzled = map.element == 2;
  if (shared_address(to) % (swizzled ? 1024 : 128))
    throw std::logic_error("a box that is not aligned");
  auto* const there = static_cast<unsigned char*>(to);
  emulation::engine_later([=] {
    const int lines = map.box[1] * map.box[2] * map.box[3], bytes = lines * 64 * map.element;
    for (int byte = 0; byte < bytes; byte += 16) emulation::check_shown(there + byte);
    for (int line = 0; line < lines; ++line)
      for (int c = 0; c < 64; ++c) {
        const std::array<int64_t, 4> at = {first[0] + c, first[1] + line % map.box[1],
                                           first[2] + line / map.box[1] % map.box[2],
                                           first[3] + line / map.box[1] / map.box[2]};
        uint16_t value = 0;
        int64_t offset = 0;
        bool inside = true;
        for (size_t i = 0; i < 4; ++i) {
          inside = inside && at[i] >= 0 && at[i] < map.sizes[i];
          offset += at[i] * map.strides[i];
        }
        const auto size = static_cast<size_t>(map.element);
        if (inside) std::memcpy(&value, map.data + offset, size);
        const int64_t to_byte = shared_address(there) + (line * 64 + c) * map.element;
        const int64_t turned = swizzled ? (to_byte >> 7 & 7) << 4 : 0;
        std::memcpy(emulation::shared_base() + (to_byte ^ turned), &value, size);
      }
    emulation::engine_wrote(there, bytes);
    emulation::change(barrier, [&](emulation::Phases& p) { p.bytes -= bytes; });
  });
}
inline void load_box(void* to, const RowMap& map, uint64_t* barrier, int channel, int head,
                     int64_t row) {
  if (channel < 0 || head < 0 || row < 0) throw std::logic_error("a box before its rows");
  load_at(to, map, barrier, {channel, head, row, 0});
}
inline void fence_rows() { emulation::show_rows(); }
inline void load_written_box(void* to, const RowMap& map, uint64_t* barrier, int channel,
                             int64_t row) {
  emulation::check_rows_shown();
  load_box(to, map, barrier, channel, 0, row);
}
inline void load_image_box(void* to, const RowMap& map, uint64_t* barrier, int channel, int x,
                           int y, int image) {
  load_at(to, map, barrier, {channel, x, y, image});
}

inline void fence_shared() { emulation::show_to_engine(); }
inline void wait_for_threads(int name, int threads) { emulation::wait_for_threads(name, threads); }
inline void arrive_for_threads(int name, int threads) {
  emulation::arrive_for_threads(name, threads);
}
template <int Count>
void give_registers() {}
template <int Count>
void take_registers() {}

inline uint64_t tile_descriptor(const void* tile, int leading) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 |
         uint64_t(static_cast<uint32_t>(leading) >> 4) << 16 | shared_address(tile) >> 4;
}
inline void products_begin() { emulation::begin_products(); }
inline void products_commit() { emulation::commit_products(); }
template <int Left, int M>
void products_wait(float (&)[M][4]) {
  emulation::finish_products(Left);
}

template <int M>
void products_wait_behind(float (&)[M][4], float) {
  emulation::finish_products(0);
}

template <int Left>
void products_leave() {
  emulation::finish_products(Left);
}

// The rows of the left operand whose sums a thread holds.
using LeftRows = std::array<std::array<float, 16>, 2>;

// The sums of this thread: rows lane / 4, and 8 rows later, of the warp's sixteen. `left` gives the
// LeftRows; `number` widens an element of b.
template <int N, class Left>
void multiply_later(float* d, uint64_t b, const uint32_t* registers, bool add, const Left& left,
                    float (*number)(uint16_t) = bf16_bits_to_float) {
  const int lane = emulation::lane();
  const bool turned = registers != nullptr;
  emulation::check_tile(b, N, turned);
  emulation::product_later(
      [=] {
        const LeftRows rows = left();
        for (int i = 0; i < N / 4; ++i) {
          const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
          const auto right = emulation::tile_row(b, column, turned, number);
          for (int half = 0; half < 2; ++half) {
            float& to = d[i / 2 * 4 + half * 2 + i % 2];
            float sum = add ? to : 0;
            for (size_t k = 0; k < right.size(); ++k)
              sum += rows[static_cast<size_t>(half)][k] * right[k];
            to = sum;
          }
        }
      },
      d, N / 2, registers);
}
// The left operand in shared memory: a tile of 64 rows.
template <int N>
void multiply_tiles(float* d, uint64_t a, uint64_t b, bool add, float (*number)(uint16_t)) {
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + emulation::lane() / 4;
  emulation::check_tile(a, 64, false);
  const auto left = [=] {
    return LeftRows{emulation::tile_row(a, row, false, number),
                    emulation::tile_row(a, row + 8, false, number)};
  };
  multiply_later<N>(d, b, nullptr, add, left, number);
}
template <int N>
void multiply_shared(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {
  multiply_tiles<N>(&d[0][0], a, b, add, bf16_bits_to_float);
}
inline void multiply_shared_f16(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  multiply_tiles<128>(&d[0][0], a, b, add, half_bits_to_float);
}
template <int N, int Offset, int M>
void multiply_registers(float (&d)[M][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(Offset + N / 8 <= M);
  const auto& slots = emulation::show(&a, sizeof(a));
  LeftRows rows;
  for (int k = 0; k < 16; ++k) {
    const auto from =
        emulation::of_lane<std::array<uint32_t, 4>>(slots, emulation::lane() / 4 * 4 + k % 8 / 2);
    for (size_t half = 0; half < 2; ++half) {
      const uint32_t word = from[half + (k < 8 ? 0 : 2)];
      rows[half][static_cast<size_t>(k)] =
          std::bit_cast<float>(k % 2 ? word & 0xffff0000u : word << 16);
    }
  }
  multiply_later<N>(&d[Offset][0], b, a, true, [rows] { return rows; });
}

}  // namespace tessera::kernels::cuda
