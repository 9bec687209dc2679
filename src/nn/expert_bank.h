#pragma once

#include <memory>
#include <vector>

#include "ops/experts.h"

namespace tessera::nn {

/// The expert weights of a layer; in-flight work co-owns them.
struct ExpertWeightSet {
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;  ///< null weights: no shared expert
};
using ExpertBank = std::shared_ptr<const ExpertWeightSet>;

}  // namespace tessera::nn
