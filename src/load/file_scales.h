#pragma once

#include "load/tensor_file.h"

namespace tessera::load {

/// The file with weights in float8 and int8 as the floats that they stand for, times the scales
/// that stand beside them, which are left out then:
///   float8 alone: BF16, which holds each of its values;
///   `X.scale_weight` or `X.weight_scale` of X.weight: one factor, or one a row;
///   `X.comfy_quant` or `_quantization_metadata` of the header name the format: float8_e4m3fn,
///   float8_e5m2 and int8_tensorwise are read, others and rotated weights ("convrot") are not.
/// Throws Error(model) naming file and tensor: for a scale that is missing, belongs to no such
/// weight, is of another shape or no positive number, and for int8 without its format.
TensorFile with_scales(const TensorFile& file);

}  // namespace tessera::load
