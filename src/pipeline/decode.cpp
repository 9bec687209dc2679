#include "pipeline/decode.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "media/png.h"
#include "media/resize.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

// An image [1, 3, H, W] at the size that was asked for; 0: as it is.
Tensor cropped(const Tensor& image, int64_t height, int64_t width) {
  if (height == 0) return image;
  const tensor::Shape shape{1, image.size(1), height, width};
  if (image.is_meta()) return Tensor::empty(shape, DType::f32, image.device());
  const Tensor one = image.reshape({image.size(1), image.size(2), image.size(3)});
  return media::resize_and_crop(one, height, width).reshape(shape);
}

// [-1, 1] -> [0, 1], without what is beyond, where it stands.
Tensor to_unit(const Tensor& x) {
  for (int64_t i = 0; !x.is_meta() && i < x.elements(); ++i)
    x.data<float>()[i] = std::clamp(x.data<float>()[i] * 0.5f + 0.5f, 0.0f, 1.0f);
  return x;
}

// unit [1, 3, H, W]
Image image_of(const Tensor& unit, const std::string& label, int video, int frame) {
  media::Image bytes = media::to_image(unit.reshape({3, unit.size(-2), unit.size(-1)}));
  return {bytes.width, bytes.height, std::move(bytes.rgb), label, video, frame};
}

struct Decoding {
  const ModelState& state;
  const RunControl& control;
  const Job& job;
  const std::optional<models::Tiling>& tiles;
  const Tensor& tokens;
  const models::VaeSpec vae = state.vae();
  const std::unique_ptr<models::VaeDecoder> decoder = state.load_vae();
  base::Stopwatch clock{};

  void stop_if_asked(int done, int count) const {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before piece {} of {}",
            done + 1, count);
  }
  void progress(int done, int count) const {
    stop_if_asked(done, count);
    if (control.on_progress) control.on_progress({Phase::decode, done, count, clock.seconds()});
  }
  // Of one image's or video's pieces; the last one is told when all is done.
  void piece(int i, int done, int count) const {
    progress(std::min(i * count + done, count * job.samples() - 1), count * job.samples());
  }
  Tensor latent(int i) const;
  Tensor whole(int i, const Tensor& latent) const;
  Tensor decoded(int i) const;
};

// The latent of one image or video, as its VAE takes it.
Tensor Decoding::latent(int i) const {
  const int64_t n = job.layout.tokens();
  const Tensor z =
      decoder->unscale(nn::from_tokens(tokens.slice(0, i * n, (i + 1) * n), job.layout, vae.video));
  return vae.video ? z.slice(2, job.added_frames, z.size(2)).contiguous() : z;
}

// Of a latent, or of a tile of one.
Tensor Decoding::whole(int i, const Tensor& z) const {
  nn::LocalSpatial spatial;
  const Tensor x = z.to(state.device());
  models::VaeWatch watch;
  watch.piece = [&](int done, int count) {
    tiles ? stop_if_asked(done, count) : piece(i, done, count);
  };
  const Tensor made = on_host(decoder->decode(x, spatial, watch));
  if (!vae.video && !ops::all_finite(made))  // once more, to say where it began
    decoder->decode(x, spatial, {.trace = [](const std::string& name, const Tensor& out) {
                      ops::require_finite(out, "the VAE's '" + name + "'");
                    }});
  ops::require_finite(made, vae.video ? "the video VAE" : "the VAE's end");
  return made;
}

// In [0, 1]: [1, 3, H, W], or [1, 3, frames, H, W].
Tensor Decoding::decoded(int i) const {
  const auto one = [&](const Tensor& z) { return whole(i, z); };
  const Tensor z = latent(i);
  const Tensor made =
      tiles ? models::decode_tiles(z, vae.factor, *tiles, one,
                                   [&](int done, int count) { piece(i, done, count); })
            : one(z);
  return to_unit(vae.video ? made : cropped(made, job.crop_height, job.crop_width));
}

}  // namespace

Decoded decode(const ModelState& state, const RunControl& control, const Job& job,
               const std::optional<models::Tiling>& tiles, const Tensor& tokens, bool numbers) {
  const Decoding decoding{state, control, job, tiles, tokens};
  const bool video = decoding.vae.video;
  Decoded made;
  std::vector<Tensor> units;
  for (int i = 0; i < job.samples(); ++i) {
    if (!video) decoding.progress(i, job.samples());
    const Tensor unit = decoding.decoded(i);
    if (numbers) units.push_back(video ? nn::swap_frames(unit) : unit);
    const std::string& label = job.labels[static_cast<size_t>(i)];
    const int64_t frames = video ? unit.size(2) : 1;
    for (int64_t t = 0; t < frames; ++t) {
      const Tensor each = video ? unit.slice(2, t, t + 1).contiguous() : unit;
      made.pixels.push_back(Tensor::empty({each.elements()}, DType::u8, tensor::Device::meta));
      if (!each.is_meta())
        made.images.push_back(image_of(each, label, video ? i : -1, static_cast<int>(t)));
    }
  }
  if (control.on_progress)
    control.on_progress({Phase::decode, job.samples(), job.samples(), decoding.clock.seconds()});
  if (numbers) made.numbers = ops::concat_rows(units);
  return made;
}

}  // namespace tessera::pipeline
