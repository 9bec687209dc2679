#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::parallel {

/// Data for the error of stale expert rows of a layer, by (token, slot) assignment: the movement of
/// the token since the row was computed, and the length of the row.
struct RowDrift {
  std::vector<float>
      moved;  ///< sum over the steps since of |token - token a step before| / |token|
  std::vector<float> length;  ///< L2 norm of the row
};

/// [n, hidden] of two steps -> how far each row moved, relative to its length: |now - before| /
/// |before|, 0 for a row of zeros. On meta no row moves.
std::vector<float> relative_moves(const tensor::Tensor& before, const tensor::Tensor& now);
/// L2 norms of the rows of [n, hidden].
std::vector<float> row_lengths(const tensor::Tensor& rows);

/// A row with a possible omission, and the error of the omission.
struct Candidate {
  int64_t assignment = 0, old = 0;  ///< in this step, and in the step before
  float error = 0;                  ///< weight * moved * length
};
/// Moves the `count` candidates with the largest errors to the front; of equal ones the first
/// assignment.
void largest_first(std::vector<Candidate>& candidates, int64_t count);

}  // namespace tessera::parallel
