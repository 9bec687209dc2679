#include "arrays.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <utility>

namespace tessera::python {
namespace {

namespace nb = nanobind;
using nb::dlpack::dtype_code;

struct Element {
  ElementType type;
  dtype_code code;
  int bits;
};
constexpr Element kElements[] = {
    {ElementType::f32, dtype_code::Float, 32}, {ElementType::bf16, dtype_code::Bfloat, 16},
    {ElementType::f16, dtype_code::Float, 16}, {ElementType::i32, dtype_code::Int, 32},
    {ElementType::i64, dtype_code::Int, 64},   {ElementType::u8, dtype_code::UInt, 8},
    {ElementType::i8, dtype_code::Int, 8}};

std::optional<ElementType> type_of(const nb::dlpack::dtype& dtype) {
  for (const Element& e : kElements)
    if (dtype.code == static_cast<uint8_t>(e.code) && dtype.bits == e.bits && dtype.lanes == 1)
      return e.type;
  return std::nullopt;
}

std::string ascii_text(nb::handle text) {
  const auto ascii = nb::steal(PyObject_ASCII(text.ptr()));
  return ascii.is_valid() ? nb::cast<std::string>(ascii) : "?";
}

// Asks an array for memory before nanobind does: nanobind takes every exception for "no array", and
// an array may be interrupted, or end the program, while the memory is made.
void ask_for_memory(nb::handle value) {
  if (PyObject_CheckBuffer(value.ptr()) || !nb::hasattr(value, "__dlpack__")) return;
  try {
    value.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
}

nb::dlpack::dtype dtype_of(ElementType type) {
  for (const Element& e : kElements)
    if (e.type == type)
      return {static_cast<uint8_t>(e.code), static_cast<uint8_t>(e.bits), uint16_t{1}};
  return {};
}

}  // namespace

Inputs inputs_of(const nb::dict& arrays) {
  Inputs inputs;
  for (const auto [key, value] : arrays) {
    if (!nb::isinstance<nb::str>(key))
      throw nb::type_error("the names of arrays are strings, such as 'hidden_states'");
    std::string name;
    if (!nb::try_cast(key, name))
      throw nb::type_error(
          ("the name " + ascii_text(key) + " of an array cannot be written as UTF-8").c_str());
    ask_for_memory(value);
    Array array;
    if (!nb::try_cast(value, array))
      throw nb::type_error(("'" + name +
                            "' is no array in the CPU's memory: give one of NumPy, or "
                            "of what else speaks DLPack")
                               .c_str());
    const auto type = type_of(array.dtype());
    if (!type)
      throw nb::type_error(("'" + name +
                            "': no model takes its dtype; convert it, as x.astype('float32') does, "
                            "to float32, float16, bfloat16, int64, int32, int8 or uint8")
                               .c_str());
    TensorView& view = inputs.views[name];
    view.type = *type;
    for (size_t axis = 0; axis < array.ndim(); ++axis)
      view.shape.push_back(static_cast<int64_t>(array.shape(axis)));
    view.data = array.data();
    inputs.storage.push_back(std::move(array));
  }
  return inputs;
}

nb::object array_of(TensorData data) {
  auto* const storage = new TensorData(std::move(data));
  const nb::capsule owner(storage, [](void* p) noexcept { delete static_cast<TensorData*>(p); });
  const std::vector<size_t> shape(storage->shape.begin(), storage->shape.end());
  return nb::cast(nb::ndarray<nb::numpy>(storage->bytes.data(), shape.size(), shape.data(), owner,
                                         nullptr, dtype_of(storage->type)));
}

}  // namespace tessera::python
