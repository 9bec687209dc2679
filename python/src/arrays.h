#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::python {

/// Any framework's array in the CPU's memory, the last axis fastest.
using Array = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

/// Keeps arrays alive as long as their views are read.
struct Inputs {
  TensorViews views;
  std::vector<Array> storage;
};

/// Returns views of a dict's arrays; an array is copied only if it is not dense. Throws a TypeError
/// with the name of a value if the value is no array, or has elements that no model takes.
Inputs inputs_of(const nanobind::dict& arrays);
/// Moves the numbers into a NumPy array, their owner.
nanobind::object array_of(TensorData data);

}  // namespace tessera::python
