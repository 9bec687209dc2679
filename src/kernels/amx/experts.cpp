#include "kernels/experts.h"

#if defined(__x86_64__)
#include "kernels/amx/engine.h"

namespace tessera::kernels::amx {

namespace {

const avx512::Engine& engine_of(const ExpertView& expert) { return engine_for(expert.down->dtype); }

}  // namespace

const ExpertTiles& expert_tiles() {
  static constexpr ExpertTiles kTiles{
      [](const ExpertView& expert) { return avx512::expert_cuts(engine_of(expert), expert); },
      [](const ExpertView& expert, int64_t rows) {
        return avx512::expert_inner_bytes(engine_of(expert), expert, rows);
      },
      [](const ExpertTile& tile) { avx512::expert_up_tile(engine_of(*tile.expert), tile); },
      [](const ExpertTile& tile) { avx512::expert_down_tile(engine_of(*tile.expert), tile); }};
  return kTiles;
}

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

}  // namespace tessera::kernels::amx
#endif  // __x86_64__
