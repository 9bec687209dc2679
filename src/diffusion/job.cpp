#include "diffusion/job.h"

namespace tessera::diffusion {

double flops_of(const Work& work) {
  double sum = 0;
  for (const auto& [op, entry] : work) sum += entry.flops;
  return sum;
}

}  // namespace tessera::diffusion
