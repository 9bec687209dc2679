#pragma once

#include "planner/cluster_description.h"
#include "planner/recording.h"
#include "tensor/scope.h"

namespace tessera::planner {

/// Seconds of an op on a device: the longer time of computing and of moving bytes, each at the
/// share of the peak for the op's kind and size (Williams et al. 2009, the roofline model).
double seconds_of(const Op& op, const Device& device, const Software& software);

/// Kernels that the software issues for an op.
double kernels_of(const Op& op, const Software& software);

/// Seconds of counted ops without a recording; ops of one kind count as equal.
double seconds_of(const std::map<std::string, tensor::Meter::Entry>& work, tensor::DType dtype,
                  const Device& device, const Software& software);

}  // namespace tessera::planner
