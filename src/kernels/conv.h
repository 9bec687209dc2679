#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

/// Data that a kernel family derives from a filter once and caches: the folded filter for
/// up-sampled inputs. Guarded by the mutex.
struct ConvDerived {
  std::mutex mutex;
  tensor::Tensor folded;  ///< avx512: the filter of the four phases of a doubled input
};

/// A filter of a 2-D convolution packed for an instruction set. `reference`: [out, kh, kw, in].
/// `avx2`: these rows packed by pack_weight(), i8: the rows of each tap. `avx512` and `amx`: see
/// kernels/avx512/conv.h.
struct PackedConv {
  int64_t out = 0, in = 0, kh = 0, kw = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< f32, bf16 or i8
  Isa isa = Isa::reference;
  tensor::Tensor data;      ///< meta: shape only
  tensor::Tensor scales{};  ///< i8 only: f32, a scale for each output channel, then zeros
  tensor::Tensor bias;      ///< f32 [out]; may be undefined
  std::shared_ptr<ConvDerived> derived;
};

/// Packs weight [out, in, kh, kw] and bias [out] (any float dtype; the bias may be undefined). i8:
/// the weights of an output channel are quantised as a row by quantise_rows().
PackedConv pack_conv(const tensor::Tensor& weight, const tensor::Tensor& bias, tensor::DType dtype,
                     Isa isa);

/// y = conv(act(x * scale + shift)) + bias + residual, channels last. The input after scale, shift
/// and SiLU is rounded to the filter's dtype; sums are f32. With filters in i8 the channels of an
/// input pixel are rounded to integers with a scale for the pixel (see kInt8Largest); products of a
/// tap are summed in integers, taps in f32.
struct ConvArgs {
  const void* x = nullptr;  ///< [rows, height, width, in]; a row is dense
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;  ///< elements from row to row
  int64_t rows = 0, height = 0, width = 0;
  const PackedConv* weight = nullptr;
  const float* scale_shift = nullptr;  ///< [rows, 2, in]; null: no scale and shift
  bool silu = false;
  bool upsample = false;  ///< each input pixel is repeated as 2 x 2 pixels
  int stride = 1;
  int pad_top = 0, pad_left = 0;
  const void* residual = nullptr;  ///< shape and dtype of y; may alias y
  void* y = nullptr;               ///< [rows, out_height, out_width, out], dense
  tensor::DType y_dtype = tensor::DType::f32;
  int64_t out_height = 0, out_width = 0;
};

namespace reference {
/// Plain loops with f64 sums: the definition of correct results.
void conv(const ConvArgs& args);
}  // namespace reference
namespace avx512 {
/// Implicit matrix product over tiles of pixels; scale, shift, SiLU, padding and up-sampling are
/// applied while a tile is copied.
void conv(const ConvArgs& args);
}  // namespace avx512
namespace avx2 {
/// Products over copied patches.
void conv(const ConvArgs& args);
}  // namespace avx2
namespace cuda {
/// Implicit matrix product over 128 pixels at a time; scale, shift and SiLU run before, padding and
/// up-sampling while a tile is copied. Filters as for `reference`.
void conv(const ConvArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
