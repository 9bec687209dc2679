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

/// One axis of a rotary table: the place of each token and how many pairs of channels it turns.
struct RotaryAxis {
  std::vector<double> places;
  int64_t pairs = 0;
};
/// Angles of several axes side by side (FLUX; axial rotary embedding): cos and sin f32
/// [tokens, sum of pairs], frequencies 10000^(-i / pairs) of each axis.
ops::RotaryTable rotary_axes(const std::vector<RotaryAxis>& axes,
                             tensor::Device device = tensor::Device::cpu);

/// The part of a trained grid (lines, columns) on which another grid is laid, centred, its longer
/// side filling it (HunyuanDiT and CogVideoX pipelines).
struct GridRegion {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};
GridRegion centred_region(int64_t lines, int64_t columns, int64_t base_lines, int64_t base_columns);

/// count places from `begin` to end * (count - 1) / count, as diffusers spreads them over a region.
std::vector<double> spread_places(int64_t begin, int64_t end, int64_t count);

/// Rows of x by ranges, one after the other; a view of it if they stand like that already.
tensor::Tensor take_ranges(const tensor::Tensor& x, const std::vector<Range>& ranges);

/// Places in the packed order `whole` of segments that are parts of its, in its order. Throws
/// Error(usage) for one that is none.
std::vector<Range> places_of(const Segments& whole, const Segments& parts);
/// Rows of a table with `per_sequence` entries for each sequence of the batch (0: the same for
/// all), as the tokens of `segments` stand; a view of it if they stand like that already.
tensor::Tensor take_tokens(const tensor::Tensor& table, int64_t per_sequence,
                           const Segments& segments);
/// The angles of the tokens of `segments`, from a table of one sequence's tokens.
ops::RotaryTable take_angles(const ops::RotaryTable& table, const Segments& segments);

}  // namespace tessera::nn
