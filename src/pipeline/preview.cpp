#include "pipeline/preview.h"

#include "base/fail.h"
#include "base/stop.h"
#include "pipeline/decode.h"
#include "pipeline/memory_plan.h"

namespace tessera::pipeline {

std::vector<Image> preview(const ModelState& state, const std::stop_token& stop, const Job& job,
                           const tensor::Tensor& tokens) {
  require(state.has_vae(), ErrorCode::model, "'{}' has no VAE, so there is no preview", state.name);
  const base::BindStop asked(stop);
  tensor::Scope aside = state.workers.scope(-1, &job.meters);
  aside.meter = nullptr;
  const tensor::BindScope bind(aside);
  int64_t held = 0;
  for (int i = 0; i < tensor::kMemoryClasses; ++i)
    held += job.meters.memory->current(static_cast<tensor::MemoryClass>(i));
  Room room = room_of(state, held);
  room.bytes = room.bytes / 5 * 4;  // the images, and what a decoder takes beside its estimate
  std::optional<models::Tiling> tiles = job.tiles;
  if (!tiles || decode_need(state.vae(), state.dtype(), job.layout, tiles).peak > room.bytes)
    tiles = fitting_tiles(state, job.layout, room);
  return decode(state, {.stop = stop}, job, tiles, tokens).images;
}

}  // namespace tessera::pipeline
