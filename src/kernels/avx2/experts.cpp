#include "kernels/experts.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/avx2/product.h"
#include "kernels/avx2/vector.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

#include "kernels/wide/combine.inc"
#include "kernels/wide/rows.inc"

const ExpertTiles& expert_tiles() { return wide::tiles_of<engine_for>(); }

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
