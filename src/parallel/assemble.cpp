#include "parallel/assemble.h"

namespace tessera::parallel {

Assembly assemble(const nn::Geometry& geometry, const Plan& plan) {
  Assembly assembly;
  assembly.plan = plan;
  assembly.blocks = {0, geometry.blocks};
  assembly.attention = std::make_unique<nn::LocalAttention>(geometry);
  assembly.experts = std::make_unique<nn::LocalExperts>();
  return assembly;
}

}  // namespace tessera::parallel
