#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels::simd {
namespace {

constexpr int64_t kSide = 16;            // side of a transposed square
constexpr int64_t kTaskBytes = 1 << 16;  // minimum work of a thread

// Merges axes as far as the strides allow.
CopyArgs merged(const CopyArgs& args) {
  CopyArgs m = args;
  m.axes = 0;
  for (size_t a = 0; a < args.axes; ++a) {
    if (args.size[a] == 1) continue;
    if (m.axes > 0) {
      const size_t last = m.axes - 1;
      if (m.x_stride[last] == args.x_stride[a] * args.size[a] &&
          m.y_stride[last] == args.y_stride[a] * args.size[a]) {
        m.size[last] *= args.size[a];
        m.x_stride[last] = args.x_stride[a], m.y_stride[last] = args.y_stride[a];
        continue;
      }
    }
    m.size[m.axes] = args.size[a];
    m.x_stride[m.axes] = args.x_stride[a], m.y_stride[m.axes] = args.y_stride[a];
    ++m.axes;
  }
  return m;
}

// Removes an axis from a copy.
struct Axis {
  int64_t size = 1, x_stride = 1, y_stride = 1;
};
Axis take(CopyArgs& args, size_t axis) {
  const Axis result{args.size[axis], args.x_stride[axis], args.y_stride[axis]};
  for (size_t a = axis; a + 1 < args.axes; ++a) {
    args.size[a] = args.size[a + 1];
    args.x_stride[a] = args.x_stride[a + 1], args.y_stride[a] = args.y_stride[a + 1];
  }
  --args.axes;
  return result;
}

// Calls inner(x, y, index on the last axis) for each point of the remaining axes, on as many
// threads as worthwhile.
template <class T, class F>
void each_point(const CopyArgs& args, int64_t inner_elements, const F& inner) {
  int64_t count = 1;
  for (size_t a = 0; a < args.axes; ++a) count *= args.size[a];
  const int64_t bytes = std::max<int64_t>(inner_elements * int64_t{sizeof(T)}, 1);
  tensor::parallel_for(count, std::max<int64_t>(kTaskBytes / bytes, 1),
                       [&](int64_t begin, int64_t end) {
                         std::array<int64_t, CopyArgs::kMostAxes> at{};
                         int64_t rest = begin, from = 0, to = 0;
                         for (size_t a = args.axes; a-- > 0; rest /= args.size[a]) {
                           at[a] = rest % args.size[a];
                           from += at[a] * args.x_stride[a], to += at[a] * args.y_stride[a];
                         }
                         for (int64_t i = begin; i < end; ++i) {
                           inner(static_cast<const T*>(args.x) + from, static_cast<T*>(args.y) + to,
                                 args.axes > 0 ? at[args.axes - 1] : 0);
                           for (size_t a = args.axes; a-- > 0;) {
                             from += args.x_stride[a], to += args.y_stride[a];
                             if (++at[a] < args.size[a]) break;
                             from -= at[a] * args.x_stride[a], to -= at[a] * args.y_stride[a];
                             at[a] = 0;
                           }
                         }
                       });
}

// x is contiguous along `across`, y along `along`: copies squares, so that lines of both stay in
// the cache.
template <class T>
void turn(CopyArgs args, size_t across_at) {
  const Axis along = take(args, args.axes - 1), across = take(args, across_at);
  const size_t strips = args.axes++;  // axis of rows of squares
  args.size[strips] = (across.size + kSide - 1) / kSide;
  args.x_stride[strips] = kSide * across.x_stride, args.y_stride[strips] = kSide * across.y_stride;
  each_point<T>(args, kSide * along.size, [&](const T* x, T* y, int64_t strip) {
    const int64_t rows = std::min(kSide, across.size - strip * kSide);
    for (int64_t j0 = 0; j0 < along.size; j0 += kSide)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = j0; j < std::min(j0 + kSide, along.size); ++j)
          y[i * across.y_stride + j * along.y_stride] = x[i * across.x_stride + j * along.x_stride];
  });
}

template <class T>
void copy_of(CopyArgs args) {
  if (args.axes == 0) {
    std::memcpy(args.y, args.x, sizeof(T));
    return;
  }
  const size_t last = args.axes - 1;
  if (args.y_stride[last] == 1 && args.x_stride[last] == 1) {
    const Axis run = take(args, last);
    const auto bytes = static_cast<size_t>(run.size) * sizeof(T);
    if (run.size <= 4) {  // a call would cost more than the elements
      each_point<T>(args, run.size, [&](const T* x, T* y, int64_t) {
        for (int64_t i = 0; i < run.size; ++i) y[i] = x[i];
      });
      return;
    }
    each_point<T>(args, run.size, [&](const T* x, T* y, int64_t) { std::memcpy(y, x, bytes); });
    return;
  }
  for (size_t a = 0; a < last; ++a)
    if (args.x_stride[a] == 1) return turn<T>(args, a);
  const Axis inner = take(args, last);
  each_point<T>(args, inner.size, [&](const T* x, T* y, int64_t) {
    for (int64_t i = 0; i < inner.size; ++i) y[i * inner.y_stride] = x[i * inner.x_stride];
  });
}

}  // namespace

void copy(const CopyArgs& args) {
  for (size_t a = 0; a < args.axes; ++a)
    if (args.size[a] == 0) return;
  const CopyArgs few = merged(args);
  switch (few.element) {
    case 1: return copy_of<uint8_t>(few);
    case 2: return copy_of<uint16_t>(few);
    case 4: return copy_of<uint32_t>(few);
    default: return copy_of<uint64_t>(few);
  }
}

void move_rows(const MoveRowsArgs& args) {
  const int64_t x_row = args.x_stride * tensor::size_of(args.x_dtype),
                y_row = args.y_stride * tensor::size_of(args.y_dtype);
  const auto bytes = static_cast<size_t>(args.columns * tensor::size_of(args.y_dtype));
  tensor::parallel_for(args.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = args.from ? args.from[i] : i, to = args.to ? args.to[i] : i;
      const auto* x = static_cast<const std::byte*>(args.x) + from * x_row;
      auto* y = static_cast<std::byte*>(args.y) + to * y_row;
      if (from < 0)
        std::memset(y, 0, bytes);
      else if (args.x_dtype == args.y_dtype)
        std::memcpy(y, x, bytes);
      else
        cpu_table().elementwise({.a = x,
                                 .a_dtype = args.x_dtype,
                                 .y = y,
                                 .y_dtype = args.y_dtype,
                                 .rows = 1,
                                 .columns = args.columns});
    }
  });
}

}  // namespace tessera::kernels::simd
