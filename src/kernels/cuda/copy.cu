#include "kernels/copy.h"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

// The axes of a copy of fewer than 2^31 elements, outermost first.
struct CopyBoxes {
  int axes;
  Divisor size[CopyArgs::kMostAxes];
  int64_t x_stride[CopyArgs::kMostAxes], y_stride[CopyArgs::kMostAxes];
};

template <class T>
__global__ void __launch_bounds__(kSpreadThreads)
    copy_kernel(const T* x, T* y, const __grid_constant__ CopyBoxes boxes, uint32_t count) {
  after_those_before();
  for (uint32_t i = first_small_piece(); i < count; i += small_piece_step()) {
    uint32_t rest = i;
    int64_t from = 0, to = 0;
    TESSERA_UNROLL
    for (int axis = static_cast<int>(CopyArgs::kMostAxes) - 1; axis >= 0; --axis) {
      if (axis >= boxes.axes) continue;
      const RowPlace at(rest, boxes.size[axis]);
      from += at.chunk * boxes.x_stride[axis];
      to += at.chunk * boxes.y_stride[axis];
      rest = at.row;
    }
    y[to] = x[from];
  }
}

// Converts to a copy of 16-byte elements, if contiguity allows.
bool widen_elements(CopyArgs& a) {
  if (a.axes == 0 || reinterpret_cast<uintptr_t>(a.x) % 16 || reinterpret_cast<uintptr_t>(a.y) % 16)
    return false;
  const size_t last = a.axes - 1;
  const int64_t together = 16 / a.element;
  if (a.x_stride[last] != 1 || a.y_stride[last] != 1 || a.size[last] % together) return false;
  for (size_t axis = 0; axis < last; ++axis)
    if (a.x_stride[axis] % together || a.y_stride[axis] % together) return false;
  for (size_t axis = 0; axis < last; ++axis) {
    a.x_stride[axis] /= together;
    a.y_stride[axis] /= together;
  }
  a.size[last] /= together;
  a.element = 16;
  return true;
}

template <class T>
void run(const CopyArgs& a, uint32_t count) {
  CopyBoxes boxes{};
  boxes.axes = static_cast<int>(a.axes);
  for (size_t axis = 0; axis < a.axes; ++axis) {
    boxes.size[axis] = Divisor(a.size[axis]);
    boxes.x_stride[axis] = a.x_stride[axis];
    boxes.y_stride[axis] = a.y_stride[axis];
  }
  launch("copy", copy_kernel<T>, early(spread(count)), static_cast<const T*>(a.x),
         static_cast<T*>(a.y), boxes, count);
}

// Splits the longest axis in halves until 32 bits count the elements.
void copy_elements(const CopyArgs& a) {
  int64_t count = 1;
  size_t longest = 0;
  for (size_t axis = 0; axis < a.axes; ++axis) {
    count *= a.size[axis];
    if (a.size[axis] > a.size[longest]) longest = axis;
  }
  if (count == 0) return;
  if (count > 0x7fffffff) {
    CopyArgs low = a, high = a;
    low.size[longest] = a.size[longest] / 2;
    high.size[longest] = a.size[longest] - low.size[longest];
    high.x =
        static_cast<const std::byte*>(a.x) + low.size[longest] * a.x_stride[longest] * a.element;
    high.y = static_cast<std::byte*>(a.y) + low.size[longest] * a.y_stride[longest] * a.element;
    copy_elements(low);
    return copy_elements(high);
  }
  const auto pieces = static_cast<uint32_t>(count);
  switch (a.element) {
    case 1: return run<uint8_t>(a, pieces);
    case 2: return run<uint16_t>(a, pieces);
    case 4: return run<uint32_t>(a, pieces);
    case 8: return run<uint64_t>(a, pieces);
    default: return run<uint4>(a, pieces);
  }
}

template <int V>
__global__ void __launch_bounds__(kSpreadThreads)
    move_rows_kernel(MoveRowsArgs a, Divisor chunks, int64_t begin, uint32_t pieces) {
  after_those_before();
  for (uint32_t i = first_small_piece(); i < pieces; i += small_piece_step()) {
    const RowPlace at(i, chunks);
    const int64_t row = begin + at.row, column = int64_t{at.chunk} * V;
    const int64_t from = a.from ? a.from[row] : row, to = a.to ? a.to[row] : row;
    float v[V] = {};
    if (from >= 0) load<V>(a.x, a.x_dtype, from * a.x_stride + column, v);
    store<V>(a.y, a.y_dtype, to * a.y_stride + column, v);
  }
}

template <int V>
void run(const MoveRowsArgs& args) {
  const int64_t chunks = args.columns / V;
  each_run_of_rows(args.rows, chunks, [&](int64_t first, int64_t count) {
    launch("move_rows", move_rows_kernel<V>, early(spread(count * chunks)), args, Divisor(chunks),
           first, static_cast<uint32_t>(count * chunks));
  });
}

}  // namespace

void copy(const CopyArgs& args) {
  CopyArgs wide = args;
  copy_elements(widen_elements(wide) ? wide : args);
}

void move_rows(const MoveRowsArgs& args) {
  const bool words = args.columns % 8 == 0 && in_words(args.x, args.x_dtype, args.x_stride) &&
                     in_words(args.y, args.y_dtype, args.y_stride);
  words ? run<8>(args) : run<1>(args);
}

}  // namespace tessera::kernels::cuda
