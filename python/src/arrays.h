#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::python {

/// Any framework's array in the CPU's memory, the last axis fastest.
using Array = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

/// Arrays that stay alive as long as something reads them.
struct Inputs {
  TensorViews views;
  std::vector<Array> kept;
};

/// Views of a dict's arrays; only what is not dense is copied. Throws a TypeError that names the
/// array for what is none, or has elements that no model takes.
Inputs inputs_of(const nanobind::dict& arrays);
/// A NumPy array that owns the numbers.
nanobind::object array_of(TensorData data);

}  // namespace tessera::python
