#include "kernels/experts.h"

#include <algorithm>
#include <vector>

#include "kernels/matmul.h"
#include "tensor/scope.h"

namespace tessera::kernels::reference {

void experts(const ExpertsArgs& args) {
  const int64_t size = size_of(args.dtype);
  tensor::parallel_for(args.tokens * args.slots, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> inner(static_cast<size_t>(args.inner));
    for (int64_t i = begin; i < end; ++i) {
      std::byte* row = static_cast<std::byte*>(args.rows) + i * args.hidden * size;
      if (args.ids[i] < 0) {
        std::fill_n(row, args.hidden * size, std::byte{0});
        continue;
      }
      const ExpertView& expert = args.bank[args.ids[i]];
      const auto* x = static_cast<const std::byte*>(args.x) + i / args.slots * args.x_stride * size;
      // The down product rounds its input, the inner activation, to the dtype of its weights.
      matmul({.x = x,
              .x_dtype = args.dtype,
              .x_stride = 0,
              .rows = 1,
              .weight = expert.up,
              .epilogue = {.bias = expert.up_bias, .activation = args.activation},
              .y = inner.data(),
              .y_dtype = tensor::DType::f32,
              .y_stride = 0});
      matmul({.x = inner.data(),
              .x_dtype = tensor::DType::f32,
              .x_stride = 0,
              .rows = 1,
              .weight = expert.down,
              .epilogue = {.bias = expert.down_bias},
              .y = row,
              .y_dtype = args.dtype,
              .y_stride = 0});
    }
  });
}

void combine(const CombineArgs& args) {
  tensor::with_float_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    const T* rows = static_cast<const T*>(args.rows);
    const T* shared = static_cast<const T*>(args.shared);
    tensor::parallel_for(args.tokens, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t c = 0; c < args.hidden; ++c) {
          float sum = 0;
          for (int64_t j = 0; j < args.slots; ++j) {
            const int64_t i = t * args.slots + j;
            sum += args.weights[i] * tensor::to_float(rows[i * args.row_stride + c]);
          }
          if (shared) sum += tensor::to_float(shared[t * args.shared_stride + c]);
          static_cast<T*>(args.y)[t * args.hidden + c] = tensor::from_float<T>(sum);
        }
    });
  });
}

}  // namespace tessera::kernels::reference
