#include "diffusion/decode.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "cluster/agree.h"
#include "cluster/gather_reports.h"
#include "comm/collectives.h"
#include "diffusion/launch_bands.h"
#include "diffusion/overlay.h"
#include "media/png.h"
#include "media/resize.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "tensor/run_watcher.h"

namespace tessera::diffusion {
namespace {

using tensor::DType;
using tensor::Tensor;

// Crops images [..., H, W] to the requested size; 0: no crop.
Tensor cropped(const Tensor& image, const Job& job) {
  const int64_t height = job.planned.crop_height, width = job.planned.crop_width;
  if (height == 0) return image;
  if (!job.planned.crop_covers) {
    const int64_t top = (image.size(-2) - height) / 2, left = (image.size(-1) - width) / 2;
    return image.slice(-2, top, top + height).slice(-1, left, left + width).contiguous();
  }
  const tensor::Shape shape{1, image.size(1), height, width};
  if (image.is_meta()) return Tensor::empty(shape, DType::f32, image.device());
  const Tensor plane = image.reshape({image.size(1), image.size(2), image.size(3)});
  return media::resize_and_crop(plane, height, width).reshape(shape);
}

// Maps [-1, 1] to [0, 1] in place, and clamps.
Tensor to_unit(const Tensor& x) {
  for (int64_t i = 0; !x.is_meta() && i < x.elements(); ++i)
    x.data<float>()[i] = std::clamp(x.data<float>()[i] * 0.5f + 0.5f, 0.0f, 1.0f);
  return x;
}

// unit [1, 3, H, W]
Image image_of(const Tensor& unit, const std::string& label, int video, int frame, double rate) {
  media::Image bytes = media::to_image(unit.reshape({3, unit.size(-2), unit.size(-1)}));
  return {bytes.width, bytes.height, std::move(bytes.rgb), label, video, frame, rate};
}

/// A rank's part of decoding.
struct Decoding {
  const runtime::ModelState& state;
  const RunControl& control;
  const Job& job;
  const std::optional<models::Tiling>& tiles;
  const Tensor& tokens;  ///< the first rank's
  const models::VaeDecoder& decoder;
  nn::Spatial& spatial;
  comm::Communicator* ranks = nullptr;  ///< null: a single rank
  const models::VaeSpec vae = state.vae();
  base::Stopwatch clock{};
  bool all_know = false;  ///< all ranks know the failure

  bool first() const { return !ranks || ranks->rank() == 0; }
  // All ranks return the word of the first rank.
  bool agreed(bool word) const {
    return ranks ? comm::agreed(*ranks, 0, word, comm::kControl) : word;
  }
  void stop_if_asked(int done, int count) const {
    const bool stop_requested =
        (first() || !state.ranks().all_here()) && control.stop.stop_requested();
    require(!agreed(stop_requested) && !stop_requested, ErrorCode::cancelled,
            "stopped before piece {} of {}", done + 1, count);
  }
  void progress(int done, int count) const {
    stop_if_asked(done, count);
    if (first() && control.on_progress)
      control.on_progress({Phase::decode, done, count, clock.seconds()});
  }
  // Reports a finished piece of an image or video; the last piece is reported when all is done.
  void piece(int i, int done, int count) const {
    progress(std::min(i * count + done, count * job.samples() - 1), count * job.samples());
  }
  void require_finite(const Tensor& values, const std::string& part);
  Tensor latent(int i) const;
  Tensor whole(int i, const Tensor& latent);
  Tensor decoded(int i);
  Decoded all(bool numbers);
};

// Checks the first rank's tensor; all ranks throw the same error.
void Decoding::require_finite(const Tensor& values, const std::string& part) {
  if (agreed(ops::all_finite(values))) return;
  all_know = true;
  ops::fail_not_finite(part);
}

// The latent of one image or video, in the layout of its VAE.
Tensor Decoding::latent(int i) const {
  const comm::Tag tag{"latents", -1, TrafficKind::decode};
  if (!first()) return ranks->receive(0, tag).wait();
  const int64_t n = job.planned.layout.tokens();
  Tensor z = decoder.unscale(
      nn::from_tokens(tokens.slice(0, i * n, (i + 1) * n), job.planned.layout, vae.video));
  if (vae.video) z = z.slice(2, job.planned.added_frames, z.size(2)).contiguous();
  return ranks ? comm::broadcast(*ranks, 0, z, tag) : z;
}

// Decodes a latent or a tile of a latent; ranks other than the first get a result without lines.
Tensor Decoding::whole(int i, const Tensor& z) {
  const Tensor x = z.to(state.device());
  models::VaeWatch watch;
  watch.piece = [&](int done, int count) {
    tiles ? stop_if_asked(done, count) : piece(i, done, count);
  };
  const Tensor pixels = runtime::on_host(decoder.decode(x, spatial, watch));
  if (agreed(ops::all_finite(pixels))) return pixels;
  if (!vae.video)  // decodes again to find the first layer with NaN
    decoder.decode(x, spatial, {.trace = [this](const std::string& name, const Tensor& out) {
                     require_finite(out, "the VAE's '" + name + "'");
                   }});
  require_finite(pixels, vae.video ? "the video VAE" : "the VAE's end");
  return pixels;
}

// In [0, 1]: [1, 3, H, W], or [1, 3, frames, H, W].
Tensor Decoding::decoded(int i) {
  const auto decode_whole = [&](const Tensor& z) { return whole(i, z); };
  const Tensor z = latent(i);
  Tensor pixels = tiles ? models::decode_tiles(z, vae.factor, *tiles, decode_whole,
                                               [&](int done, int count) { piece(i, done, count); })
                        : decode_whole(z);
  if (!first()) return pixels;
  return to_unit(cropped(pixels, job));
}

Decoded Decoding::all(bool numbers) {
  const bool video = vae.video;
  tensor::watch_part("decode");
  Decoded result;
  std::vector<Tensor> units;
  for (int i = 0; i < job.samples(); ++i) {
    if (!video) progress(i, job.samples());
    const Tensor unit = decoded(i);
    if (!first()) continue;
    if (numbers) units.push_back(video ? nn::swap_frames(unit) : unit);
    const std::string& label = job.planned.labels[static_cast<size_t>(i)];
    const int64_t frames = video ? unit.size(2) : 1;
    for (int64_t t = 0; t < frames; ++t) {
      const Tensor frame = video ? unit.slice(2, t, t + 1).contiguous() : unit;
      result.pixels.push_back(Tensor::empty({frame.elements()}, DType::u8, tensor::Device::meta));
      if (!frame.is_meta())
        result.images.push_back(image_of(frame, label, video ? i : -1, static_cast<int>(t),
                                         video ? state.spec->frame_rate : 0));
      if (!frame.is_meta() && job.asked.overlay)
        result.images.back() = overlaid(result.images.back(), *job.asked.overlay);
    }
  }
  if (first() && control.on_progress)
    control.on_progress({Phase::decode, job.samples(), job.samples(), clock.seconds()});
  if (numbers && first()) result.numbers = ops::concat_rows(units);
  tensor::watch_part("");
  return result;
}

// The work of a rank since `before`. `weights`: bytes of the decoder, shared by all ranks of a
// process.
Report did_since(const tensor::Scope& rank, int64_t weights, const comm::Ledger::Entries& before,
                 const comm::Ledger& ledger) {
  Report part;
  for (const auto& [key, entry] : ledger.since(before))
    part.traffic[key] = {entry.messages, entry.bytes, entry.wait_seconds, entry.flight_seconds,
                         entry.kind};
  part.per_rank = {runtime::work_of(rank, 0)};
  part.per_rank[0].peak_bytes.weights += weights;
  part.per_rank[0].peak_bytes.total += weights;
  return part;
}

}  // namespace

bool decodes_here(const runtime::ModelState& state) {
  const Plan& plan = state.options.plan;
  return plan.vae_apart ? state.ranks().any_here(plan.world(), plan.ranks())
                        : state.ranks().any_here(0, plan.vae);
}

SharedDecoder load_decoder(const runtime::ModelState& state, const Job& job,
                           const std::shared_ptr<tensor::MemoryTracker>& memory) {
  tensor::Scope counting = tensor::current_scope();
  counting.memory = std::make_shared<tensor::MemoryTracker>(memory);
  const tensor::BindScope bind(counting);
  SharedDecoder shared{state.load_vae(job.admitted.keeps_vae)};
  derive_filters(state, *shared.decoder, job.planned.layout.channels);
  shared.weights = counting.memory->current(tensor::MemoryClass::weights);
  return shared;
}

Decoded decode_share(const runtime::ModelState& state, const RunControl& control, const Job& job,
                     const std::optional<models::Tiling>& tiles, const Tensor& tokens,
                     const models::VaeDecoder& decoder, nn::Spatial& spatial,
                     comm::Communicator* ranks, int in_world, bool numbers) {
  Decoding decoding{state, control, job, tiles, tokens, decoder, spatial, ranks};
  try {
    return decoding.all(numbers);
  } catch (const std::exception& e) {
    if (ranks && !decoding.all_know) cluster::end_all(*ranks, in_world, e, "decodes");
    if (ranks) ranks->check();  // another rank may have failed and caused this failure
    throw cluster::SharedError(cluster::named(e, ranks ? ranks->in_world(0) : in_world, "decodes"));
  }
}

Decoded decode(const runtime::ModelState& state, const RunControl& control, const Job& job,
               const std::optional<models::Tiling>& tiles, const Tensor& tokens, bool numbers) {
  nn::LocalSpatial spatial(job.planned.vae_chunk);
  const auto decoder = state.load_vae(job.admitted.keeps_vae);
  return Decoding{state, control, job, tiles, tokens, *decoder, spatial}.all(numbers);
}

void derive_filters(const runtime::ModelState& state, const models::VaeDecoder& decoder,
                    int64_t channels) {
  tensor::Scope aside = tensor::current_scope();
  aside.meter = nullptr;
  const tensor::BindScope bind(aside);
  const tensor::Shape pixel =
      state.video() ? tensor::Shape{1, channels, 1, 1, 1} : tensor::Shape{1, channels, 1, 1};
  nn::LocalSpatial spatial;
  decoder.decode(Tensor::zeros(pixel, DType::f32, state.device()), spatial);
}

Decoded decode_in_bands(const runtime::ModelState& state, const RunControl& control, const Job& job,
                        const Tensor& tokens, bool numbers) {
  SharedDecoder shared;
  state.ranks().all_or_none("decodes", [&] {
    if (decodes_here(state)) shared = load_decoder(state, job, job.counted.meters.memory);
  });
  const runtime::RunMeters meters = job.counted.meters.anew();
  const std::optional<models::Tiling> whole;
  std::vector<Report> parts(static_cast<size_t>(state.options.plan.vae));
  Decoded result;
  const auto share = [&](nn::Spatial& spatial, comm::Communicator* ranks) {
    const auto sent_before = ranks->ledger().entries();
    const auto rank = static_cast<size_t>(ranks->rank());
    Decoded own_result = decode_share(state, control, job, whole, tokens, *shared.decoder, spatial,
                                      ranks, ranks->rank(), numbers);
    parts[rank] = did_since(state.workers.scope(ranks->rank(), &meters), shared.weights,
                            sent_before, ranks->ledger());
    state.ranks().gather(ranks, parts[rank]);
    if (rank == 0) result = std::move(own_result);
  };
  launch_bands(state, meters, control.stop, job.planned.vae_chunk, share);
  for (const Report& part : parts) cluster::add_report(part, result.shared);
  return result;
}

}  // namespace tessera::diffusion
