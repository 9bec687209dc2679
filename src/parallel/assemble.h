#pragma once

#include <memory>

#include "nn/local.h"
#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// The strategies of one rank for one request. State between steps lives here.
struct Assembly {
  Plan plan;
  nn::Range blocks;  ///< of my stage
  std::unique_ptr<nn::Attention> attention;
  std::unique_ptr<nn::LocalExperts> experts;

  nn::Seams seams() const { return {*attention, *experts}; }
};

/// Builds the strategies of a plan for a model. The geometry must outlive the assembly.
Assembly assemble(const nn::Geometry& geometry, const Plan& plan);

}  // namespace tessera::parallel
