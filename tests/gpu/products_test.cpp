// Products on the GPU against the reference on the CPU.
#include "gpu/device_memory.h"
#include "kernels/closeness.h"
#include "kernels/conv.h"
#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/random_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

class GpuProducts : public OnGpu {
 protected:
  // The same tensor with its elements in device memory, for kernels alone.
  Tensor there(const Tensor& t) {
    if (!t.defined()) return t;
    return Tensor::over(tensor::Storage::view(upload(t), t.bytes(), nullptr), 0, t.shape(),
                        t.dtype());
  }
  PackedWeight there(const PackedWeight& w) {
    PackedWeight copy = w;
    copy.data = there(w.data);
    copy.scales = there(w.scales);
    return copy;
  }
};

TEST_F(GpuProducts, MatmulEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (Activation activation : {Activation::none, Activation::gelu_tanh, Activation::swiglu}) {
      const bool paired = activation == Activation::swiglu;
      const PackedWeight w = pack_weight(
          random_tensor({96, 128}, dtype, 1, 0.1f),
          paired ? random_tensor({96, 128}, dtype, 2, 0.1f) : Tensor{}, dtype, Isa::reference);
      const Tensor x = random_tensor({70, 128}, dtype, 3),
                   bias = random_tensor({96}, DType::f32, 4);
      const Tensor want = Tensor::zeros({70, 96}, dtype), got = Tensor::zeros({70, 96}, dtype);
      MatmulArgs args{
          .x = x.raw(),
          .x_dtype = dtype,
          .x_stride = 128,
          .rows = 70,
          .weight = &w,
          .epilogue = {.bias = paired ? nullptr : bias.data<float>(), .activation = activation},
          .y = want.raw(),
          .y_dtype = dtype,
          .y_stride = 96};
      reference::matmul(args);
      const PackedWeight device = there(w);
      args.x = upload(x);
      args.weight = &device;
      if (!paired) args.epilogue.bias = reinterpret_cast<float*>(upload(bias));
      args.y = upload(got);
      cuda_table().matmul(args);
      download(got, args.y);
      EXPECT_LT(worst_difference(got, want), tolerance(dtype, 1e-4)) << int(activation);
    }
}

TEST_F(GpuProducts, ExpertsEqualTheReference) {
  for (DType weights : {DType::f32, DType::bf16, DType::i8}) {
    std::vector<PackedWeight> host, device;
    for (uint32_t e = 0; e < 4; ++e) {
      host.push_back(pack_weight(random_tensor({72, 136}, DType::f32, 3 * e, 0.1f),
                                 random_tensor({72, 136}, DType::f32, 3 * e + 1, 0.1f), weights,
                                 Isa::reference));
      host.push_back(pack_weight(random_tensor({136, 72}, DType::f32, 3 * e + 2, 0.1f), {}, weights,
                                 Isa::reference));
    }
    for (const PackedWeight& w : host) device.push_back(there(w));
    std::vector<ExpertView> bank, device_bank;
    for (size_t e = 0; e < host.size(); e += 2) {
      bank.push_back({&host[e], &host[e + 1]});
      device_bank.push_back({&device[e], &device[e + 1]});
    }
    const Tensor x = random_tensor({300, 136}, DType::bf16, 50);
    std::vector<int32_t> ids;
    for (int i = 0; i < 600; ++i) ids.push_back(i * 7 % 5 - 1);
    const Tensor want = Tensor::zeros({600, 136}, DType::bf16),
                 got = Tensor::zeros({600, 136}, DType::bf16);
    ExpertsArgs args{.x = x.raw(),
                     .dtype = DType::bf16,
                     .x_stride = 136,
                     .tokens = 300,
                     .slots = 2,
                     .hidden = 136,
                     .inner = 72,
                     .ids = ids.data(),
                     .bank = bank.data(),
                     .experts = 4,
                     .rows = want.raw()};
    reference::experts(args);
    args.x = upload(x);
    args.ids = upload(ids);
    args.bank = device_bank.data();
    args.rows = upload(got);
    cuda_table().experts(args);
    download(got, args.rows);
    EXPECT_LT(worst_difference(got, want), 2e-2) << tensor::name_of(weights);
  }
}

TEST_F(GpuProducts, ConvEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({2, 9, 14, 24}, dtype, 1),
                 bias = random_tensor({40}, DType::f32, 3);
    const PackedConv w =
        pack_conv(random_tensor({40, 24, 3, 3}, dtype, 2, 0.07f), bias, dtype, Isa::reference);
    const Tensor want = Tensor::zeros({2, 18, 28, 40}, dtype),
                 got = Tensor::zeros({2, 18, 28, 40}, dtype);
    ConvArgs args{.x = x.raw(),
                  .dtype = dtype,
                  .x_stride = x.stride(0),
                  .rows = 2,
                  .height = 9,
                  .width = 14,
                  .weight = &w,
                  .silu = true,
                  .upsample = true,
                  .pad_top = 1,
                  .pad_left = 1,
                  .y = want.raw(),
                  .y_dtype = dtype,
                  .out_height = 18,
                  .out_width = 28};
    reference::conv(args);
    PackedConv device = w;
    device.data = there(w.data);
    device.bias = there(w.bias);
    args.x = upload(x);
    args.weight = &device;
    args.y = upload(got);
    cuda_table().conv(args);
    download(got, args.y);
    EXPECT_LT(worst_difference(got, want), tolerance(dtype, 1e-4));
  }
}

}  // namespace
}  // namespace tessera::kernels
