#include "ops/finite.h"

#include "base/fail.h"
#include "kernels/finite.h"
#include "kernels/table.h"

namespace tessera::ops {
using tensor::Tensor;

bool all_finite(const Tensor& x) {
  if (!x.defined() || x.is_meta() || !tensor::is_float(x.dtype()) || x.elements() == 0) return true;
  const Tensor dense = x.contiguous(), flag = Tensor::empty({1}, tensor::DType::i32, x.device());
  kernels::table_of(x.device())
      .all_finite({dense.raw(), x.dtype(), x.elements(), flag.data<int32_t>()});
  return *flag.to(tensor::Device::cpu).data<int32_t>() != 0;
}

void require_finite(const Tensor& x, std::string_view part) {
  if (!all_finite(x)) fail_not_finite(part);
}

void fail_not_finite(std::string_view part) {
  fail(ErrorCode::model,
       "{} of the model gives values that are no numbers (NaN or infinity), and nothing before it "
       "does: its weights are damaged; get their file again",
       part);
}

}  // namespace tessera::ops
