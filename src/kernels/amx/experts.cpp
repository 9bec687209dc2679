#include "kernels/experts.h"

#if defined(__x86_64__)
#include "kernels/amx/engine.h"

namespace tessera::kernels::amx {

void experts(const ExpertsArgs& args) {
  avx512::run_experts(engine_for(args.bank[0].down->dtype), args);
}

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
