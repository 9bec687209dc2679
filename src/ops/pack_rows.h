#pragma once

#include "kernels/pack_rows.h"
#include "ops/matmul.h"

namespace tessera::ops {

/// A stored matrix with rows to read.
using kernels::StoredRows;

/// pack_weight() of rows on the CPU, or pack_paired_weight() if `up` has a matrix. Only where
/// packs_in_panels(), and not for int4, for whole matrices alone. Throws Error(usage).
Weight pack_rows(const StoredRows& w, const StoredRows& up, const WeightForm& form);

}  // namespace tessera::ops
