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
  Room room = room_of(state, job.meters.memory->current());
  TileChoice choice = choose_preview(state, job, room);
  if (choice.need.peak > room.bytes && state.kept.bytes() > 0) {
    state.kept.release();
    room = room_of(state, job.meters.memory->current());
    choice = choose_preview(state, job, room);
  }
  const Need& need = choice.need;
  if (need.peak > room.bytes)
    fail(ErrorCode::memory, "{}",
         too_large("a preview", need.peak, need.weights, room, "use a smaller size"));
  return decode(state, {.stop = stop}, job, choice.tiles, tokens).images;
}

}  // namespace tessera::pipeline
