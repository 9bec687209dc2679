#include "parallel/experts/launch_limits.h"

#include <fmt/format.h>

#include "fused/device_limits.h"

namespace tessera::parallel {

std::string launch_problem(const Plan& plan, const nn::Geometry& geometry) {
  if (plan.moe != MoeForm::fused) return "";
  for (size_t layer = 0; layer < geometry.experts.size(); ++layer) {
    const nn::ExpertSite& site = geometry.experts[layer];
    const std::string why =
        fused::device_problem(plan.expert, site.experts, geometry.hidden, site.inner);
    if (!why.empty())
      return fmt::format("moe=fused on a GPU: MoE layer {} has {}; use moe=bulk, or `device` cpu",
                         layer, why);
  }
  return "";
}

}  // namespace tessera::parallel
