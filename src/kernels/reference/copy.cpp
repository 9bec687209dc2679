#include "kernels/copy.h"

#include <cstring>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {

void copy(const CopyArgs& args) {
  int64_t count = 1;
  for (size_t a = 0; a < args.axes; ++a) count *= args.size[a];
  tensor::parallel_for(count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from = 0, to = 0;
      for (size_t a = args.axes; a-- > 0; rest /= args.size[a]) {
        from += rest % args.size[a] * args.x_stride[a];
        to += rest % args.size[a] * args.y_stride[a];
      }
      std::memcpy(static_cast<std::byte*>(args.y) + to * args.element,
                  static_cast<const std::byte*>(args.x) + from * args.element,
                  static_cast<size_t>(args.element));
    }
  });
}

void move_rows(const MoveRowsArgs& args) {
  tensor::with_float_type(args.x_dtype, [&](auto from) {
    tensor::with_float_type(args.y_dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      tensor::parallel_for(args.rows, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t source = args.from ? args.from[i] : i, target = args.to ? args.to[i] : i;
          const From* x = static_cast<const From*>(args.x) + source * args.x_stride;
          To* y = static_cast<To*>(args.y) + target * args.y_stride;
          for (int64_t c = 0; c < args.columns; ++c)
            y[c] = source < 0 ? To{} : tensor::from_float<To>(tensor::to_float(x[c]));
        }
      });
    });
  });
}

}  // namespace tessera::kernels::reference
