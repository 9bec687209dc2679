#include "ops/pack_rows.h"

#include <memory>
#include <utility>

#include "base/fail.h"
#include "kernels/isa.h"

namespace tessera::ops {

Weight pack_rows(const StoredRows& w, const StoredRows& up, const WeightForm& form) {
  require(!form.int4, ErrorCode::usage, "pack_rows: weight {} in int4; expected a whole matrix",
          w.matrix.values.shape().str());
  PackedWeight packed = kernels::pack_rows(w, up, form.dtype, kernels::active_isa());
  packed.int8_rows = form.int8_rows;
  return std::make_shared<const PackedWeight>(std::move(packed));
}

}  // namespace tessera::ops
