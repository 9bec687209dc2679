#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "media/png.h"
#include "media/resize.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "pipeline/denoise.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

// Each picture of [rows, 3, H, W] at the size that was asked for; 0: as it is.
Tensor cropped(const Tensor& pictures, int64_t height, int64_t width) {
  if (height == 0) return pictures;
  std::vector<Tensor> all;
  for (int64_t r = 0; r < pictures.size(0); ++r) {
    const Tensor one = pictures.slice(0, r, r + 1);
    all.push_back(
        media::resize_and_crop(one.reshape({one.size(1), one.size(2), one.size(3)}), height, width)
            .reshape({1, one.size(1), height, width}));
  }
  return ops::concat_rows(all);
}

// [-1, 1] -> [0, 1], without what is beyond.
Tensor to_unit(const Tensor& x) {
  Tensor unit = Tensor::empty(x.shape(), DType::f32);
  for (int64_t i = 0; i < unit.elements(); ++i)
    unit.data<float>()[i] = std::clamp(x.data<float>()[i] * 0.5f + 0.5f, 0.0f, 1.0f);
  return unit;
}

// unit [1, 3, H, W]
Picture picture_of(const Tensor& unit, const std::string& label, int video, int frame) {
  media::Image bytes = media::to_image(unit.reshape({unit.size(1), unit.size(2), unit.size(3)}));
  return {bytes.width, bytes.height, std::move(bytes.rgb), label, video, frame};
}

struct Decoding {
  const ModelState& state;
  const RunControl& control;
  const Job& job;
  const Tensor& tokens;
  std::vector<Picture>& pictures;
  bool keep;
  base::Stopwatch clock;

  // The latent of one picture or video, as its VAE takes it.
  Tensor latent(int i) const {
    const int64_t n = job.layout.tokens();
    return nn::from_tokens(tokens.slice(0, i * n, (i + 1) * n), job.layout, state.video());
  }
  void stop_if_asked(int done, int count) const {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before piece {} of {}",
            done + 1, count);
  }
  void progress(int done, int count) const {
    stop_if_asked(done, count);
    if (control.on_progress) control.on_progress({"decode", done, count, clock.seconds()});
  }
  // By `whole`, or in the job's tiles.
  Tensor decoded(int i, const Tensor& z, const std::function<Tensor(const Tensor&)>& whole) const {
    if (!job.tiles) return whole(z);
    return models::decode_tiles(z, state.vae_factor(), *job.tiles, whole, [&](int done, int count) {
      progress(std::min(i * count + done, count * job.pictures() - 1), count * job.pictures());
    });
  }
  std::vector<Tensor> decode_pictures() const;
  std::vector<Tensor> decode_videos() const;
};

std::vector<Tensor> Decoding::decode_pictures() const {
  const auto vae = state.load_vae();
  nn::LocalSpatial spatial;
  std::vector<Tensor> units;
  for (int i = 0; i < job.pictures(); ++i) {
    progress(i, job.pictures());
    const Tensor picture = decoded(i, vae->unscale(latent(i)), [&](const Tensor& z) {
      const Tensor x = z.to(state.device());
      const Tensor made = vae->decode(x, spatial).to(tensor::Device::cpu);
      if (!ops::all_finite(made))  // once more, to say where it began
        vae->decode(x, spatial, [](const std::string& name, const Tensor& out) {
          ops::require_finite(out, "the VAE's '" + name + "'");
        });
      ops::require_finite(made, "the VAE's end");
      return made;
    });
    const Tensor unit = to_unit(cropped(picture, job.crop_height, job.crop_width));
    pictures.push_back(picture_of(unit, job.labels[static_cast<size_t>(i)], -1, 0));
    if (keep) units.push_back(unit);
  }
  return units;
}

std::vector<Tensor> Decoding::decode_videos() const {
  const auto vae = state.load_video_vae();
  std::vector<Tensor> units;
  for (int i = 0; i < job.pictures(); ++i) {
    const Tensor whole = vae->unscale(latent(i));
    const Tensor asked = whole.slice(2, job.added_frames, whole.size(2)).contiguous();
    const Tensor video = decoded(i, asked, [&](const Tensor& z) {
      const auto piece = [&](int done, int count) {
        if (job.tiles)
          stop_if_asked(done, count);
        else
          progress(std::min(i * count + done, count * job.pictures() - 1), count * job.pictures());
      };
      const Tensor made = vae->decode(z.to(state.device()), piece).to(tensor::Device::cpu);
      ops::require_finite(made, "the video VAE");
      return made;
    });
    const Tensor unit = nn::swap_frames(to_unit(video));
    if (keep) units.push_back(unit);
    const Tensor frames =
        unit.reshape({video.size(2), video.size(1), video.size(3), video.size(4)});
    for (int64_t t = 0; t < frames.size(0); ++t)
      pictures.push_back(picture_of(frames.slice(0, t, t + 1), job.labels[static_cast<size_t>(i)],
                                    i, static_cast<int>(t)));
  }
  return units;
}

}  // namespace

Tensor decode(const ModelState& state, const RunControl& control, const Job& job,
              const Tensor& tokens, std::vector<Picture>& pictures, bool keep) {
  const Decoding decoding{state, control, job, tokens, pictures, keep};
  const auto units = state.video() ? decoding.decode_videos() : decoding.decode_pictures();
  if (control.on_progress)
    control.on_progress({"decode", job.pictures(), job.pictures(), decoding.clock.seconds()});
  return keep ? ops::concat_rows(units) : Tensor();
}

}  // namespace tessera::pipeline
