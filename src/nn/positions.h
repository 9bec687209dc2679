#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/segments.h"
#include "ops/rope.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Sines and cosines of places: f32 [places, dim], [sin | cos] of place * 10000^(-i / (dim / 2))
/// (MAE, He et al. 2022).
tensor::Tensor sincos_axis(const std::vector<double>& places, int64_t dim);

/// The places of a grid's tokens, line by line: first half of `dim` channels from the column,
/// second half from the line. f32 [lines * columns, dim].
tensor::Tensor sincos_grid(const std::vector<double>& lines, const std::vector<double>& columns,
                           int64_t dim);

/// count places from `from` on, `step` apart.
std::vector<double> even_places(int64_t count, double from = 0, double step = 1);

/// An axis of a rotary table: the place of each token and the number of turned channel pairs.
struct RotaryAxis {
  std::vector<double> places;
  int64_t pairs = 0;
};
/// Angles of several axes side by side (FLUX; axial rotary embedding): cos and sin f32
/// [tokens, sum of pairs], frequencies theta^(-i / pairs) of each axis.
ops::RotaryTable rotary_axes(const std::vector<RotaryAxis>& axes,
                             tensor::Device device = tensor::Device::cpu, double theta = 10000);

/// The part of a trained grid (lines, columns) under another grid, centred, filled by the longer
/// side (HunyuanDiT and CogVideoX pipelines).
struct GridRegion {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};
GridRegion centred_region(int64_t lines, int64_t columns, int64_t base_lines, int64_t base_columns);

/// count places from `begin` to end * (count - 1) / count, as diffusers spreads them over a region.
std::vector<double> spread_places(int64_t begin, int64_t end, int64_t count);

/// Rows of x by ranges, in sequence; a view of x if already contiguous.
tensor::Tensor take_ranges(const tensor::Tensor& x, const std::vector<Range>& ranges);

/// Places in the packed order `whole` for segments inside `whole`, in its order. Throws
/// Error(usage) for other segments.
std::vector<Range> places_of(const Segments& whole, const Segments& parts);
/// Rows of a table with `per_sequence` entries for each sequence of the batch (0: the same for
/// all), for the tokens of `segments`; a view of the table if already in this order.
tensor::Tensor take_tokens(const tensor::Tensor& table, int64_t per_sequence,
                           const Segments& segments);
/// The angles of the tokens of `segments`, from a table for a sequence's tokens.
ops::RotaryTable take_angles(const ops::RotaryTable& table, const Segments& segments);

}  // namespace tessera::nn
