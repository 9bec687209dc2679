// Kernels that read and write rows, on the GPU against the reference on the CPU.
#include "gpu/device_memory.h"
#include "kernels/attention.h"
#include "kernels/closeness.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/random_values.h"
#include "kernels/rope.h"
#include "kernels/routing.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

using GpuRows = OnGpu;

TEST_F(GpuRows, ElementwiseEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t columns : {64, 37}) {
      const Tensor a = random_tensor({50, columns}, dtype, 1),
                   b = random_tensor({50, columns}, dtype, 2);
      const Tensor want = Tensor::zeros(a.shape(), dtype), got = Tensor::zeros(a.shape(), dtype);
      ElementwiseArgs args{.op = Elementwise::swiglu,
                           .a = a.raw(),
                           .b = b.raw(),
                           .a_stride = columns,
                           .b_stride = columns,
                           .a_dtype = dtype,
                           .b_dtype = dtype,
                           .y = want.raw(),
                           .y_stride = columns,
                           .y_dtype = dtype,
                           .rows = 50,
                           .columns = columns};
      reference::elementwise(args);
      args.a = upload(a);
      args.b = upload(b);
      args.y = upload(got);
      cuda_table().elementwise(args);
      download(got, args.y);
      EXPECT_LT(worst_difference(got, want), tolerance(dtype));
    }
}

TEST_F(GpuRows, NormEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t width : {72, 1001, 3072}) {
      const Tensor x = random_tensor({33, width}, dtype, 1);
      const Tensor want = Tensor::zeros(x.shape(), dtype), got = Tensor::zeros(x.shape(), dtype);
      NormArgs args{.x = x.raw(),
                    .x_stride = width,
                    .y = want.raw(),
                    .y_stride = width,
                    .dtype = dtype,
                    .tokens = 33,
                    .width = width};
      reference::norm(args);
      args.x = upload(x);
      args.y = upload(got);
      cuda_table().norm(args);
      download(got, args.y);
      EXPECT_LT(worst_difference(got, want), tolerance(dtype, 2e-5)) << width;
    }
}

TEST_F(GpuRows, RopeEqualsTheReference) {
  const Tensor x = random_tensor({40, 256}, DType::bf16, 1);
  const Tensor turn = random_tensor({2, 40, 32}, DType::f32, 2);
  const Tensor want = Tensor::zeros(x.shape(), x.dtype()),
               got = Tensor::zeros(x.shape(), x.dtype());
  RopeArgs args{.x = x.raw(),
                .x_stride = 256,
                .y = want.raw(),
                .y_stride = 256,
                .dtype = x.dtype(),
                .tokens = 40,
                .heads = 4,
                .head_dim = 64,
                .pairs = 32,
                .cos = turn.row<float>(0),
                .sin = turn.row<float>(1),
                .interleaved = true};
  reference::rope(args);
  args.x = upload(x);
  args.y = upload(got);
  args.cos = upload(args.cos, 40 * 32);
  args.sin = upload(args.sin, 40 * 32);
  cuda_table().rope(args);
  download(got, args.y);
  EXPECT_LT(worst_difference(got, want), tolerance(x.dtype()));
}

TEST_F(GpuRows, RouteEqualsTheReference) {
  const Tensor logits = random_tensor({1000, 64}, DType::f32, 1);
  const Tensor ids = Tensor::zeros({1000, 6}, DType::i32),
               want_ids = Tensor::zeros({1000, 6}, DType::i32);
  const Tensor weights = Tensor::zeros({1000, 6}, DType::f32),
               want = Tensor::zeros({1000, 6}, DType::f32);
  RouteArgs args{.logits = logits.data<float>(),
                 .tokens = 1000,
                 .experts = 64,
                 .groups = 8,
                 .top_groups = 3,
                 .top_k = 6,
                 .renormalise = true,
                 .ids = want_ids.data<int32_t>(),
                 .weights = want.data<float>()};
  reference::route(args);
  args.logits = reinterpret_cast<float*>(upload(logits));
  args.ids = reinterpret_cast<int32_t*>(upload(ids));
  args.weights = reinterpret_cast<float*>(upload(weights));
  cuda_table().route(args);
  download(ids, args.ids);
  download(weights, args.weights);
  EXPECT_EQ(ids.to_ints(), want_ids.to_ints());
  EXPECT_LT(worst_difference(weights, want), 1e-6);
}

TEST_F(GpuRows, AttentionEqualsTheReference) {
  const std::vector<AttentionRange> spans = {{0, 100, 0, 300}, {100, 300, 50, 300}};
  for (DType dtype : {DType::f32, DType::bf16})
    for (int dim : {64, 72, 128, 256, 264}) {
      const int64_t width = int64_t{4} * dim, kv = int64_t{2} * dim;
      const Tensor q = random_tensor({300, width}, dtype, 1),
                   k = random_tensor({300, kv}, dtype, 2), v = random_tensor({300, kv}, dtype, 3);
      const Tensor want = Tensor::zeros(q.shape(), dtype), got = Tensor::zeros(q.shape(), dtype);
      const Tensor want_lse = Tensor::zeros({300, 4}, DType::f32),
                   lse = Tensor::zeros({300, 4}, DType::f32);
      AttentionArgs args{.q = q.raw(),
                         .k = k.raw(),
                         .v = v.raw(),
                         .q_stride = width,
                         .k_stride = kv,
                         .v_stride = kv,
                         .out = want.raw(),
                         .out_stride = width,
                         .dtype = dtype,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = dim,
                         .scale = 0.1f,
                         .spans = spans.data(),
                         .span_count = 2,
                         .lse = want_lse.data<float>()};
      reference::attention(args);
      args.q = upload(q);
      args.k = upload(k);
      args.v = upload(v);
      args.out = upload(got);
      args.spans = upload(spans);
      args.lse = reinterpret_cast<float*>(upload(lse));
      cuda_table().attention(args);
      download(got, args.out);
      download(lse, args.lse);
      EXPECT_LT(worst_difference(got, want), tolerance(dtype)) << dim;
      EXPECT_LT(worst_difference(lse, want_lse), 2e-4) << dim;
    }
}

}  // namespace
}  // namespace tessera::kernels
