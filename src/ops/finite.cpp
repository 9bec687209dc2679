#include "ops/finite.h"

#include "base/fail.h"
#include "kernels/finite.h"
#include "kernels/table.h"
#include "tensor/device_pool.h"

namespace tessera::ops {
using tensor::Tensor;

bool all_finite(const Tensor& x) {
  if (!x.defined() || x.is_meta() || !tensor::is_float(x.dtype()) || x.elements() == 0) return true;
  const Tensor dense = x.contiguous();
  const auto look = [&](int32_t* into) {
    kernels::table_of(x.device()).all_finite({dense.raw(), x.dtype(), x.elements(), into});
  };
  if (tensor::is_gpu(x.device())) {
    const Tensor flag = Tensor::empty({1}, tensor::DType::i32, x.device());
    look(flag.data<int32_t>());
    return *flag.to(tensor::Device::cpu).data<int32_t>() != 0;
  }
  int32_t flag = 0;
  look(&flag);
  return flag != 0;
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
