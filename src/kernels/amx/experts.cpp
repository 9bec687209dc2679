#include "kernels/experts.h"

#if defined(__x86_64__)
#include "kernels/amx/engine.h"

namespace tessera::kernels::amx {

const ExpertTiles& expert_tiles() { return wide::tiles_of<engine_for>(); }

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
