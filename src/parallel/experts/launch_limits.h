#pragma once

#include <string>

#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// The reason against moe=fused on a GPU, where a layer is a launch for all its ranks, with the
/// number; empty: none.
std::string launch_problem(const Plan& plan, const nn::Geometry& geometry);

}  // namespace tessera::parallel
