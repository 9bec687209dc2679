#include "kernels/experts.h"

#include <cstring>
#include <vector>

#include "kernels/matmul.h"

namespace tessera::kernels::onednn {
namespace {

// The rows of one expert: gathered, through both products, and back to their places.
void run_expert(const ExpertsArgs& args, const ExpertView& expert, const int32_t* pair,
                int64_t count) {
  const int64_t size = size_of(args.dtype), row = args.hidden * size;
  std::vector<std::byte> x(static_cast<size_t>(count * row)), y(x.size());
  std::vector<float> inner(static_cast<size_t>(count * args.inner));
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(x.data() + i * row,
                static_cast<const std::byte*>(args.x) + pair[i] / args.slots * args.x_stride * size,
                static_cast<size_t>(row));
  MatmulArgs product;
  product.x = x.data();
  product.x_dtype = args.dtype;
  product.x_stride = args.hidden;
  product.rows = count;
  product.weight = expert.up;
  product.epilogue = {.bias = expert.up_bias, .activation = args.activation};
  product.y = inner.data();
  product.y_stride = args.inner;
  matmul(product);
  product = {};
  product.x = inner.data();
  product.x_stride = args.inner;
  product.rows = count;
  product.weight = expert.down;
  product.epilogue.bias = expert.down_bias;
  product.y = y.data();
  product.y_dtype = args.dtype;
  product.y_stride = args.hidden;
  matmul(product);
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<std::byte*>(args.rows) + pair[i] * row, y.data() + i * row,
                static_cast<size_t>(row));
}

}  // namespace

void experts(const ExpertsArgs& args) {
  // The library has no products of f32 rows and int8 weights with a scale a column.
  if (args.experts > 0 && args.bank[0].down->dtype == tensor::DType::i8)
    return reference::experts(args);
  const size_t row = static_cast<size_t>(args.hidden * size_of(args.dtype));
  for (int64_t i = 0; i < args.tokens * args.slots; ++i)
    if (args.ids[i] < 0)
      std::memset(static_cast<std::byte*>(args.rows) + static_cast<size_t>(i) * row, 0, row);
  const ExpertGroups groups = group_by_expert(args);
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t begin = groups.begin[static_cast<size_t>(e)];
    const int64_t count = groups.begin[static_cast<size_t>(e) + 1] - begin;
    if (count > 0) run_expert(args, args.bank[e], groups.pair.data() + begin, count);
  }
}

}  // namespace tessera::kernels::onednn
