#include "ops/conv.h"

#include "base/fail.h"
#include "kernels/avx512/conv.h"
#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/group_norm.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/device_pool.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using tensor::Shape;

void count(const char* op, double flops, int64_t bytes, const Tensor& y, int64_t depth = 0) {
  tensor::OpSize size = tensor::op_size(y);
  size.depth = depth;
  tensor::count_op(op, flops, static_cast<double>(bytes), size);
}

// A row of an image is contiguous; rows may be apart (a view of lines).
bool rows_dense(const Tensor& x) {
  return x.stride(2) == x.size(3) && (x.size(1) <= 1 || x.stride(1) == x.size(2) * x.size(3));
}

void check_image(const char* op, const Tensor& x) {
  require(x.rank() == 4 && tensor::is_float(x.dtype()), ErrorCode::usage,
          "{}: x {} of {}; expected floats [rows, height, width, channels]", op, x.shape(),
          tensor::name_of(x.dtype()));
}

Tensor dense_rows(const Tensor& x) {
  return x.is_meta() || x.elements() == 0 || rows_dense(x) ? x : x.contiguous();
}

void check_scale_shift(const char* op, const Tensor& x, const Tensor& scale_shift) {
  require(scale_shift.shape() == Shape({x.size(0), 2, x.size(3)}) &&
              scale_shift.dtype() == DType::f32 && scale_shift.dense(),
          ErrorCode::usage, "{}: scale and shift {} of {}; expected dense f32 [{}, 2, {}]", op,
          scale_shift.shape(), tensor::name_of(scale_shift.dtype()), x.size(0), x.size(3));
}

Shape result_shape(const Tensor& x, const kernels::PackedConv& w, const Conv2dOptions& o) {
  require(x.size(3) == w.in, ErrorCode::usage, "conv2d: x {} has {} channels; the filter takes {}",
          x.shape(), x.size(3), w.in);
  require(
      o.stride >= 1 && o.pad_top >= 0 && o.pad_bottom >= 0 && o.pad_left >= 0 && o.pad_right >= 0,
      ErrorCode::usage, "conv2d: stride {} and padding {} {} {} {}; expected >= 1 and >= 0",
      o.stride, o.pad_top, o.pad_bottom, o.pad_left, o.pad_right);
  const int64_t scale = o.upsample ? 2 : 1;
  const int64_t height = x.size(1) * scale + o.pad_top + o.pad_bottom - w.kh;
  const int64_t width = x.size(2) * scale + o.pad_left + o.pad_right - w.kw;
  require((height >= 0 && width >= 0) || x.size(1) == 0, ErrorCode::usage,
          "conv2d: x {} with its padding is smaller than the filter {} x {}", x.shape(), w.kh,
          w.kw);
  return {x.size(0), height < 0 ? 0 : height / o.stride + 1, width < 0 ? 0 : width / o.stride + 1,
          w.out};
}

Tensor result_of(const Tensor& x, const Shape& shape, DType dtype, const Conv2dOptions& o) {
  require(tensor::is_float(dtype), ErrorCode::usage, "conv2d: out is {}; expected f32, bf16 or f16",
          tensor::name_of(dtype));
  if (o.residual.defined())
    require(o.residual.shape() == shape && o.residual.dtype() == dtype && o.residual.dense(),
            ErrorCode::usage, "conv2d: residual {} of {}; expected dense {} of {}",
            o.residual.shape(), tensor::name_of(o.residual.dtype()), shape.str(),
            tensor::name_of(dtype));
  require(!o.into_residual || o.residual.defined(), ErrorCode::usage,
          "conv2d: into_residual without a residual; give one");
  return o.into_residual ? o.residual : Tensor::empty(shape, dtype, x.device());
}

}  // namespace

ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype) {
  return pack_conv(weight, bias, dtype, weight.device());
}

ConvWeight pack_conv(const Tensor& weight, const Tensor& bias, DType dtype, tensor::Device device) {
  const bool there = tensor::is_gpu(device) && !weight.is_meta();
  require(dtype != DType::i8 || !there, ErrorCode::usage,
          "pack_conv: filters in i8 run on CPUs; choose bf16");
  const Tensor w = weight.is_meta() ? weight : weight.to(tensor::Device::cpu);
  const Tensor b = !bias.defined() || bias.is_meta() ? bias : bias.to(tensor::Device::cpu);
  kernels::PackedConv packed =
      kernels::pack_conv(w, b, dtype, there ? kernels::Isa::reference : kernels::active_isa());
  if (there) {
    packed.data = packed.data.to(device, tensor::MemoryClass::weights);
    packed.bias = packed.bias.to(device, tensor::MemoryClass::weights);
  }
  return std::make_shared<const kernels::PackedConv>(std::move(packed));
}

FrameFilters pack_frames(const Tensor& weight, const Tensor& bias, DType dtype,
                         tensor::Device device) {
  require(weight.rank() == 5, ErrorCode::usage,
          "pack_frames: weight {}; expected [out, in, frames, height, width]", weight.shape());
  const Shape frame{weight.size(0), weight.size(1), weight.size(3), weight.size(4)};
  auto filters = std::make_shared<std::vector<ConvWeight>>();
  for (int64_t k = 0; k < weight.size(2); ++k)
    filters->push_back(pack_conv(weight.slice(2, k, k + 1).contiguous().reshape(frame),
                                 k == 0 ? bias : Tensor(), dtype, device));
  return filters;
}

int64_t filter_lines(const ConvWeight& weight) { return weight->kh; }

Tensor conv2d(const Tensor& image, const ConvWeight& weight, const Conv2dOptions& options) {
  require(weight != nullptr, ErrorCode::usage, "conv2d: no filter; pack one with pack_conv");
  check_image("conv2d", image);
  if (options.scale_shift.defined()) check_scale_shift("conv2d", image, options.scale_shift);
  require(image.is_meta() || !weight->data.is_meta(), ErrorCode::usage,
          "conv2d: x has elements but the filter is on meta; put both on one device");
  const Shape shape = result_shape(image, *weight, options);
  const Tensor y =
      result_of(image, shape, options.out_as_input ? image.dtype() : options.out, options);
  count("conv2d",
        2.0 * static_cast<double>(y.elements()) *
            static_cast<double>(weight->in * weight->kh * weight->kw),
        image.bytes() + weight->data.bytes() + y.bytes() +
            (options.residual.defined() ? y.bytes() : 0),
        y, weight->in * weight->kh * weight->kw);
  if (y.is_meta() && options.upsample && options.stride == 1)
    kernels::avx512::derive_on_meta(*weight);
  if (y.is_meta() || y.elements() == 0) return y;
  require_beside("conv2d", "filter", weight->data, image.device());
  require_beside("conv2d", "scale and shift", options.scale_shift, image.device());
  require_beside("conv2d", "residual", options.residual, image.device());
  const Tensor x = dense_rows(image);
  kernels::table_of(x.device(), weight->isa)
      .conv({.x = x.raw(),
             .dtype = x.dtype(),
             .x_stride = x.stride(0),
             .rows = x.size(0),
             .height = x.size(1),
             .width = x.size(2),
             .weight = weight.get(),
             .scale_shift =
                 options.scale_shift.defined() ? options.scale_shift.data<float>() : nullptr,
             .silu = options.silu,
             .upsample = options.upsample,
             .stride = options.stride,
             .pad_top = options.pad_top,
             .pad_left = options.pad_left,
             .residual = options.residual.defined() ? options.residual.raw() : nullptr,
             .y = y.raw(),
             .y_dtype = y.dtype(),
             .out_height = y.size(1),
             .out_width = y.size(2)});
  return y;
}

Tensor upsample_nearest_2x(const Tensor& image) {
  check_image("upsample_nearest_2x", image);
  const Tensor x = dense_rows(image);
  Tensor y =
      Tensor::empty({x.size(0), 2 * x.size(1), 2 * x.size(2), x.size(3)}, x.dtype(), x.device());
  count("upsample", 0, x.bytes() + y.bytes(), y);
  if (y.is_meta() || y.elements() == 0) return y;
  const int64_t rows = x.size(0), h = x.size(1), w = x.size(2), c = x.size(3);
  kernels::table_of(x.device())
      .copy({.x = x.raw(),
             .y = y.raw(),
             .element = tensor::size_of(x.dtype()),
             .axes = 6,
             .size = {rows, h, 2, w, 2, c},
             .x_stride = {x.stride(0), w * c, 0, c, 0, 1},
             .y_stride = {4 * h * w * c, 4 * w * c, 2 * w * c, 2 * c, c, 1}});
  return y;
}

Tensor channel_moments(const Tensor& image) {
  check_image("channel_moments", image);
  const Tensor x = dense_rows(image);
  Tensor moments = Tensor::empty({x.size(0), 2, x.size(3)}, DType::f32, x.device());
  count("group_norm", 3 * static_cast<double>(x.elements()), x.bytes() + moments.bytes(), x);
  if (x.is_meta() || moments.elements() == 0) return moments;
  require(x.size(1) * x.size(2) > 0, ErrorCode::usage,
          "channel_moments: x {} has no pixels; give at least one", x.shape());
  kernels::table_of(x.device())
      .channel_moments({.x = x.raw(),
                        .dtype = x.dtype(),
                        .x_stride = x.stride(0),
                        .rows = x.size(0),
                        .pixels = x.size(1) * x.size(2),
                        .channels = x.size(3),
                        .moments = moments.data<float>()});
  return moments;
}

Tensor group_scale_shift(const Tensor& moments, int groups, const Tensor& weight,
                         const Tensor& bias, float eps) {
  require(moments.rank() == 3 && moments.size(1) == 2 && moments.dtype() == DType::f32 &&
              moments.dense(),
          ErrorCode::usage, "group_norm: moments {}; expected dense f32 [rows, 2, channels]",
          moments.shape());
  const int64_t channels = moments.size(2);
  require(groups >= 1 && channels % groups == 0, ErrorCode::usage,
          "group_norm: {} channels in {} groups; the groups must divide the channels", channels,
          groups);
  for (const Tensor* t : {&weight, &bias})
    require(!t->defined() || (t->shape() == Shape({channels}) && t->dtype() == DType::f32),
            ErrorCode::usage, "group_norm: weight or bias {}; expected f32 [{}]", t->shape(),
            channels);
  Tensor result = Tensor::empty(moments.shape(), DType::f32, moments.device());
  if (result.is_meta()) return result;
  if (result.elements() == 0) return result;
  kernels::table_of(moments.device())
      .group_scale_shift({.moments = moments.data<float>(),
                          .rows = moments.size(0),
                          .channels = channels,
                          .groups = groups,
                          .weight = weight.defined() ? weight.data<float>() : nullptr,
                          .bias = bias.defined() ? bias.data<float>() : nullptr,
                          .eps = eps,
                          .scale_shift = result.data<float>()});
  return result;
}

Tensor channel_affine(const Tensor& image, const Tensor& scale_shift, bool silu) {
  check_image("channel_affine", image);
  check_scale_shift("channel_affine", image, scale_shift);
  const Tensor x = dense_rows(image);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  count("group_norm", (silu ? 6.0 : 2.0) * static_cast<double>(x.elements()), x.bytes() + y.bytes(),
        y);
  if (y.is_meta() || y.elements() == 0) return y;
  kernels::table_of(x.device())
      .channel_affine({.x = x.raw(),
                       .dtype = x.dtype(),
                       .x_stride = x.stride(0),
                       .rows = x.size(0),
                       .pixels = x.size(1) * x.size(2),
                       .channels = x.size(3),
                       .scale_shift = scale_shift.data<float>(),
                       .silu = silu,
                       .y = y.raw()});
  return y;
}

Tensor group_norm(const Tensor& x, int groups, const Tensor& weight, const Tensor& bias, float eps,
                  bool silu) {
  return channel_affine(x, group_scale_shift(channel_moments(x), groups, weight, bias, eps), silu);
}

}  // namespace tessera::ops
