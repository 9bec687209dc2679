#pragma once

#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// The expert rows of a rank: its tokens times the experts of each.
struct RowSizes {
  int layers = 0, top_k = 0;
  int64_t tokens = 0;       ///< of the rank, in all of its rows
  int64_t token_bytes = 0;  ///< hidden * bytes of an element

  /// Rows of one layer at home.
  int64_t home() const { return tokens * top_k * token_bytes; }
  /// The same under way: each carries the number of its expert.
  int64_t wire() const { return home() + tokens * top_k * 4; }
};

/// The most bytes of rows that a rank keeps between layers and steps, as Setup::peak_kept_bytes
/// counts them: from the plan alone. With `conditional` it is a bound, as if every token changed
/// its experts in every step; else it is exact.
int64_t kept_row_bytes(const Plan& plan, int steps, const RowSizes& sizes);

/// Bytes of the messages of one layer, and of the rows that they bring home, on a rank of `ranks`
/// that share experts: with a routing that loads all of them alike, and messages that are copied,
/// as between processes.
int64_t exchange_bytes(const RowSizes& sizes, int ranks);

}  // namespace tessera::parallel
