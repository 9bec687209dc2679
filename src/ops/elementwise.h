#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/upload.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Converts to another float dtype (round to nearest even); returns x itself if the dtype is the
/// same.
Tensor cast(const Tensor& x, DType dtype);
/// a + b, same shape; the dtype of a.
Tensor add(const Tensor& a, const Tensor& b);
/// a * alpha + b * beta, same shape and dtype (f32 for samplers).
Tensor blend(const Tensor& a, float alpha, const Tensor& b, float beta);
/// x / over * by, rounded after each operation.
Tensor scale(const Tensor& x, float by, float over = 1);
/// a * b, same shape; the dtype of a.
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor silu(const Tensor& x);
/// max(x, 0); NaN stays.
Tensor relu(const Tensor& x);
Tensor gelu_tanh(const Tensor& x);
/// silu(gate) * up, same shape.
Tensor swiglu(const Tensor& gate, const Tensor& up);
/// cap * tanh(x / cap): values stay inside (-cap, cap) (Gemma 2, section 2).
Tensor softcap(const Tensor& x, float cap);
/// x + gate[row_of[t]] * y: x, y [tokens, channels], gate f32 [rows, channels].
Tensor add_gated(const Tensor& x, const Tensor& y, const Tensor& gate, const RowMap& row_of);
/// x plus a repeated row: dense x with a multiple of the elements of the dense f32 row.
Tensor add_row(const Tensor& x, const Tensor& row);
/// x [tokens, channels] times an f32 row [channels], in the dtype of x.
Tensor multiply_row(const Tensor& x, const Tensor& row);
/// y[to[i], :] = x[from[i], :], cast; zeros where from[i] is -1. x and y: float matrices of the
/// same width, views allowed; either `from` or `to` may be empty: 0, 1, 2, ... Rows in `to` are
/// distinct. Throws Error(usage) for a row outside x or y.
void move_rows(const Tensor& x, std::span<const int32_t> from, const Tensor& y,
               std::span<const int32_t> to);
/// Gathers rows of table [n, channels] (f32, bf16 or f16) by index -> [indices, channels] in
/// `dtype`. Throws Error(usage) for an index outside the table.
Tensor gather_rows(const Tensor& table, std::span<const int32_t> indices, DType dtype);
/// Concatenates tensors of the same dtype along axis 0 / along the last axis.
Tensor concat_rows(const std::vector<Tensor>& parts);
Tensor concat_columns(const std::vector<Tensor>& parts);
/// Sinusoidal embedding of timesteps t f32 [rows] -> f32 [rows, dim]: [cos | sin] of
/// t * max_period^(-i / (dim/2)) (DDPM, Ho 2020; as in DiT), `sin_first` swaps the halves,
/// exponent divisor (dim/2 - downscale).
struct TimestepOptions {
  bool sin_first = false;
  float downscale = 0;
  float max_period = 10000;
  float scale = 1;  ///< multiplies t
};
Tensor timestep_embedding(const Tensor& t, int64_t dim, const TimestepOptions& options = {});

}  // namespace tessera::ops
