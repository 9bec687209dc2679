#include "runtime/tensor_view.h"

#include <cstring>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::runtime {
namespace {

using tensor::DType;
using tensor::Tensor;

// Both enums have the same order.
static_assert(static_cast<int>(DType::i8) == static_cast<int>(ElementType::i8));

}  // namespace

Tensor tensor_of(const std::string& name, const TensorView& view) {
  require(view.type >= ElementType::f32 && view.type <= ElementType::i8, ErrorCode::usage,
          "the tensor {} has the element type {}, which is none", base::printable(name),
          static_cast<int>(view.type));
  Tensor x;
  try {
    const tensor::Shape shape(view.shape);
    require(view.data != nullptr || shape.elements() == 0, ErrorCode::usage, "{} has no data",
            shape.str());
    x = Tensor::empty(shape, static_cast<DType>(view.type));
  } catch (const Error& e) {
    fail(ErrorCode::usage, "the tensor {}: {}", base::printable(name), e.what());
  }
  if (x.bytes() > 0) std::memcpy(x.raw(), view.data, static_cast<size_t>(x.bytes()));
  return x;
}

TensorData data_of(const Tensor& x) {
  const Tensor dense = x.to(tensor::Device::cpu).contiguous();
  TensorData data;
  data.type = static_cast<ElementType>(dense.dtype());
  data.shape.assign(dense.shape().begin(), dense.shape().end());
  data.bytes.resize(static_cast<size_t>(dense.bytes()));
  if (!data.bytes.empty()) std::memcpy(data.bytes.data(), dense.raw(), data.bytes.size());
  return data;
}

}  // namespace tessera::runtime
