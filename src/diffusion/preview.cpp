#include "diffusion/preview.h"

#include "base/fail.h"
#include "base/stop.h"
#include "diffusion/decode.h"
#include "load/tiny_vae.h"
#include "nn/local_spatial.h"

namespace tessera::diffusion {

std::vector<Image> preview(const runtime::ModelState& state, const std::stop_token& stop,
                           const Job& job, const tensor::Tensor& tokens) {
  const bool own = state.folder.has(load::kPreviewVae);
  require(own || state.has_vae(), ErrorCode::model, "'{}' has no VAE, so there is no preview",
          state.name);
  const base::BindStop stop_binding(stop);
  tensor::Scope aside = state.workers.scope(-1, &job.counted.meters);
  aside.meter = nullptr;
  const tensor::BindScope bind(aside);
  if (own) {
    nn::LocalSpatial spatial(job.planned.vae_chunk);
    const auto decoder = state.load_preview_vae();
    return decode_share(state, {.stop = stop}, job, {}, tokens, *decoder, spatial, nullptr, 0,
                        false)
        .images;
  }
  const std::optional<models::Tiling> tiles = job.admitted.preview_tiles(job);
  return decode(state, {.stop = stop}, job, tiles, tokens).images;
}

}  // namespace tessera::diffusion
