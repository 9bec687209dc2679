#pragma once

#include "load/tensor_file.h"

namespace tessera::load {

/// Expands float8 and int8 weights to floats, multiplied with their scales. The scale tensors are
/// removed. Formats:
///   float8 alone: BF16, which represents every value exactly;
///   `X.scale_weight` or `X.weight_scale` of X.weight: one factor, or one for each row;
///   `X.comfy_quant` or `_quantization_metadata` of the header name the format: float8_e4m3fn,
///   float8_e5m2 and int8_tensorwise are supported, others and rotated weights ("convrot") are not.
/// Throws Error(model) naming file and tensor: for a scale that is missing, belongs to no such
/// weight, has another shape or is not positive, and for int8 without a format.
TensorFile with_scales(const TensorFile& file);

}  // namespace tessera::load
