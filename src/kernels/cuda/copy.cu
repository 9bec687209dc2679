#include "kernels/copy.h"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kSpreadThreads) copy_kernel(CopyArgs a, int64_t count) {
  for (int64_t i = first_piece(); i < count; i += piece_step()) {
    int64_t rest = i, from = 0, to = 0;
    for (size_t axis = a.axes; axis-- > 0; rest /= a.size[axis]) {
      const int64_t at = rest % a.size[axis];
      from += at * a.x_stride[axis];
      to += at * a.y_stride[axis];
    }
    static_cast<T*>(a.y)[to] = static_cast<const T*>(a.x)[from];
  }
}

__global__ void __launch_bounds__(kSpreadThreads) move_rows_kernel(MoveRowsArgs a) {
  for (int64_t i = first_piece(); i < a.rows * a.columns; i += piece_step()) {
    const int64_t row = i / a.columns, column = i % a.columns;
    const int64_t from = a.from ? a.from[row] : row, to = a.to ? a.to[row] : row;
    float v[1] = {0};
    if (from >= 0) load<1>(a.x, a.x_dtype, from * a.x_stride + column, v);
    store<1>(a.y, a.y_dtype, to * a.y_stride + column, v);
  }
}

}  // namespace

void copy(const CopyArgs& args) {
  int64_t count = 1;
  for (size_t axis = 0; axis < args.axes; ++axis) count *= args.size[axis];
  launch("copy",
         args.element == 1   ? copy_kernel<uint8_t>
         : args.element == 2 ? copy_kernel<uint16_t>
         : args.element == 4 ? copy_kernel<uint32_t>
                             : copy_kernel<uint64_t>,
         spread(count), args, count);
}

void move_rows(const MoveRowsArgs& args) {
  launch("move_rows", move_rows_kernel, spread(args.rows * args.columns), args);
}

}  // namespace tessera::kernels::cuda
