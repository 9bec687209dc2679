#include "diffusion/decode_pipeline.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "cluster/agree.h"
#include "cluster/gather_reports.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "parallel/spatial/bands.h"
#include "runtime/launch.h"

namespace tessera::diffusion {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr comm::Tag kLatents{"latents", -1, TrafficKind::decode},
    kImage{"image", -1, TrafficKind::decode}, kWord = comm::kControl;

// Sends a control word; no ledger counts control words as traffic.
void tell(comm::Communicator& ranks, const Tensor& word) {
  for (int r = 0; r < ranks.size(); ++r)
    if (r != ranks.rank()) ranks.post(r, word, kWord);
}

// Packs a sample's images into u8 [frames, height, width, 3]; on meta [frames, bytes].
Tensor packed(const Decoded& decoded, size_t first, size_t frames) {
  const auto count = static_cast<int64_t>(frames);
  if (decoded.images.empty())
    return Tensor::empty({count, decoded.pixels[first].elements()}, DType::u8,
                         tensor::Device::meta);
  const Image& any = decoded.images[first];
  Tensor message = Tensor::empty({count, any.height, any.width, 3}, DType::u8);
  for (size_t t = 0; t < frames; ++t) {
    const std::vector<uint8_t>& rgb = decoded.images[first + t].rgb;
    std::memcpy(static_cast<uint8_t*>(message.raw()) + t * rgb.size(), rgb.data(), rgb.size());
  }
  return message;
}

// `video`: number of the video, or -1; `rate`: frames a second.
void unpack(const Tensor& x, const std::string& label, int video, double rate, Decoded& into) {
  const auto bytes = static_cast<size_t>(x.elements() / x.size(0));
  for (int64_t t = 0; t < x.size(0); ++t) {
    into.pixels.push_back(
        Tensor::empty({static_cast<int64_t>(bytes)}, DType::u8, tensor::Device::meta));
    if (x.is_meta()) continue;
    const auto* const rgb = static_cast<const uint8_t*>(x.raw()) + static_cast<size_t>(t) * bytes;
    into.images.push_back(
        {x.size(2), x.size(1), {rgb, rgb + bytes}, label, video, static_cast<int>(t), rate});
  }
}

/// Rank 0's end of the relay: sends latents, receives images.
class LatentExchange {
 public:
  /// `pair`, `latents`: rank 0 and the first decoder.
  LatentExchange(comm::Communicator& pair, comm::Communicator& latents,
                 const runtime::ModelState& state, std::stop_token stop)
      : pair_(pair),
        latents_(latents),
        video_(state.video()),
        rate_(video_ ? state.spec->frame_rate : 0),
        stop_(std::move(stop)) {}
  void give(QueuedRequest& queued, const Job& part, const Tensor& tokens) {
    take();
    tell(pair_, comm::word_of(nullptr));
    latents_.send(1, tokens, kLatents);
    end_message_ = pair_.receive(1, kWord);
    const int messages = part.samples() + (queued.trace.wanted() ? 1 : 0);
    for (int i = 0; i < messages; ++i) pending_parts_.push_back(pair_.receive(1, kImage));
    queued_ = &queued;
    part_ = &part;
  }
  /// Receives the images of the part in flight. Rethrows an error of the decoder.
  void take() {
    if (!pending_parts_.empty()) cluster::throw_if_error(end_message_.wait());
    for (size_t i = 0; i < pending_parts_.size(); ++i) {
      require(!stop_.stop_requested(), ErrorCode::cancelled, "stopped before image {} of {}",
              part_->planned.first_sample + std::min(static_cast<int>(i) + 1, part_->samples()),
              queued_->job.samples());
      const Tensor x = pending_parts_[i].wait();
      const auto sample = static_cast<int>(i);
      Decoded& decoded = queued_->decoded;
      if (sample < part_->samples())
        unpack(x, part_->planned.labels[i], video_ ? part_->planned.first_sample + sample : -1,
               rate_, decoded);
      else
        decoded.numbers = decoded.numbers.defined() ? ops::concat_rows({decoded.numbers, x}) : x;
    }
    pending_parts_.clear();
  }

 private:
  comm::Communicator &pair_, &latents_;
  bool video_;
  double rate_;
  std::stop_token stop_;
  QueuedRequest* queued_ = nullptr;
  const Job* part_ = nullptr;
  comm::Pending end_message_;
  std::vector<comm::Pending> pending_parts_;
};

/// A rank within its stage.
struct RequestStage {
  runtime::ModelState& state;
  const RunControl& control;
  std::deque<QueuedRequest>& requests;
  std::deque<Denoising>& denoising;  ///< an object for each request
  const SharedDecoder& decoder;
  comm::Communicator& world;
  comm::Communicator* stage_ranks;  ///< ranks of this stage; null: a single rank
  /// `pair` connects only rank 0 and the first decoder; other ranks are alone in their groups.
  /// Messages left in a group are dropped when either end leaves. Latents have a group of their
  /// own: if sending latents fails, the next message must not be taken for them.
  comm::Communicator &pair, &latents, &urgent;
  std::stop_token stop;  ///< the stop of this stage: rank 0's, if a decoder is another process

  void denoise();
  void denoise_all();
  void by_first(const std::function<void()>& work);
  void decode();
  void go_on();
  void each(const std::function<void(QueuedRequest& queued, Denoising& denoising)>& run,
            int64_t weights);
  void decode_part(const QueuedRequest& queued, const Job& part, nn::Spatial& spatial);
  bool first() const { return !stage_ranks || stage_ranks->rank() == 0; }
};

// Runs all requests in turn, each in its own scope and report.
void RequestStage::each(const std::function<void(QueuedRequest& queued, Denoising& denoising)>& run,
                        int64_t weights) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto before = i == 0 ? requests[i].job.counted.sent_before : world.ledger().entries();
    const tensor::BindScope bind(
        state.workers.scope(world.rank(), &requests[i].job.counted.meters));
    run(requests[i], denoising[i]);
    denoising[i].end(world.rank(), &world, before, weights);
  }
}

// Runs `work` on the first rank of the stage. If `work` throws, all ranks of the stage throw the
// same error.
void RequestStage::by_first(const std::function<void()>& work) {
  if (!first()) return cluster::throw_if_error(stage_ranks->receive(0, kWord).wait());
  try {
    work();
  } catch (const Error& e) {
    if (stage_ranks && e.code() != ErrorCode::rank) tell(*stage_ranks, comm::word_of(&e));
    throw;
  }
  if (stage_ranks) tell(*stage_ranks, comm::word_of(nullptr));
}

void RequestStage::denoise_all() {
  LatentExchange relay(pair, latents, state, control.stop);
  const auto last = [&](QueuedRequest& queued) {
    const base::Stopwatch waiting;
    const int samples = queued.job.samples();
    const auto tell = [&](int done) {
      if (control.on_progress)
        control.on_progress({Phase::decode, done, samples, waiting.seconds()});
    };
    tell(samples - queued.parts.back().samples());
    relay.take();
    queued.result.report.phase_seconds[Phase::decode] = waiting.seconds();
    tell(samples);
  };
  const auto run = [&](QueuedRequest& queued, Denoising& steps) {
    std::vector<Tensor> part_tokens;
    for (const Job& part : queued.parts) {
      part_tokens.push_back(steps.run(stage_ranks, part, &world));
      by_first([&] { relay.give(queued, part, part_tokens.back()); });
    }
    if (first()) queued.tokens = ops::concat_rows(part_tokens);
    if (&queued == &requests.back()) by_first([&] { last(queued); });
  };
  each(run, 0);
}

// Threads end together in any case. Decoders in other processes learn from rank 0 how the run
// ended, at once if they are busy.
void RequestStage::denoise() {
  try {
    denoise_all();
  } catch (const Error& e) {
    if (first() && !state.ranks().all_here() && e.code() != ErrorCode::rank) {
      tell(urgent, comm::word_of(nullptr));
      tell(pair, comm::word_of(&e));
    }
    throw;
  }
  if (first()) tell(pair, comm::word_of(nullptr));
}

// Receives rank 0's word: the next part or the end. Rethrows rank 0's error.
void RequestStage::go_on() {
  const Tensor word = (first() ? pair : *stage_ranks).receive(0, kWord).wait();
  if (first() && stage_ranks) tell(*stage_ranks, word);
  cluster::throw_if_error(word);
}

void RequestStage::decode_part(const QueuedRequest& queued, const Job& part, nn::Spatial& spatial) {
  const Tensor tokens = first() ? latents.receive(0, kLatents).wait() : Tensor();
  RunControl quiet;
  quiet.stop = stop;
  Decoded decoded;
  try {
    decoded = decode_share(
        state, quiet, part, stage_ranks ? std::nullopt : queued.job.admitted.tiles, tokens,
        *decoder.decoder, spatial, stage_ranks, world.rank(), queued.trace.wanted());
  } catch (const Error& e) {
    if (e.code() == ErrorCode::rank) throw;
    if (e.code() == ErrorCode::cancelled && !control.stop.stop_requested()) go_on();
    if (first()) tell(pair, comm::word_of(&e));
    throw;
  }
  if (!first()) return;
  tell(pair, comm::word_of(nullptr));
  const size_t frames = decoded.pixels.size() / static_cast<size_t>(part.samples());
  for (size_t at = 0; at < decoded.pixels.size(); at += frames)
    pair.send(0, packed(decoded, at, frames), kImage);
  if (queued.trace.wanted()) pair.send(0, decoded.numbers, kImage);
}

void RequestStage::decode() {
  const bool reads_stop = first() || !state.ranks().all_here();
  const auto run = [&](QueuedRequest& queued, Denoising&) {
    const int64_t chunk = queued.job.planned.vae_chunk;
    nn::LocalSpatial whole(chunk);
    std::optional<parallel::Bands> bands;
    if (stage_ranks) bands.emplace(*stage_ranks, reads_stop ? stop : std::stop_token(), chunk);
    for (const Job& part : queued.parts) {
      go_on();
      decode_part(queued, part, stage_ranks ? static_cast<nn::Spatial&>(*bands) : whole);
    }
  };
  each(run, decoder.weights);
  go_on();
}

// Marks the decoders' work in the report.
void name_decoders(const Plan& plan, Report& report) {
  for (size_t r = static_cast<size_t>(plan.world()); r < report.per_rank.size(); ++r) {
    Report::Rank& rank = report.per_rank[r];
    rank.decode_peak_bytes = std::exchange(rank.peak_bytes, {});
    rank.decode_flops = std::exchange(rank.flops, 0);
  }
}

}  // namespace

void run_stages(runtime::ModelState& state, const RunControl& control,
                std::deque<QueuedRequest>& requests, const SharedDecoder& decoder) {
  const Plan& plan = state.options.plan;
  std::deque<Denoising> denoising;
  for (QueuedRequest& queued : requests)
    denoising.emplace_back(state, queued.request, control, queued.job, queued.trace,
                           queued.result.report);
  runtime::launch_ranks(
      state, requests.front().job.counted.meters, control.stop, [&](comm::Communicator* world) {
        const bool decodes = world->rank() >= plan.world();
        std::vector<int> members(static_cast<size_t>(decodes ? plan.vae : plan.world()));
        std::iota(members.begin(), members.end(), decodes ? plan.world() : 0);
        const auto group = world->group(members);
        const bool alone = members.size() == 1;
        const bool talks = world->rank() == 0 || world->rank() == plan.world();
        const std::vector<int> ends =
            talks ? std::vector{0, plan.world()} : std::vector{world->rank()};
        const auto pair = world->group(ends), latents = world->group(ends),
                   urgent = world->group(ends);
        std::stop_source stop_source;
        if (decodes && talks)
          urgent->listen(
              [stop_source](int, const comm::Message&) mutable { stop_source.request_stop(); });
        const std::stop_callback callback(control.stop,
                                          [&stop_source] { stop_source.request_stop(); });
        const std::stop_token stop = decodes ? stop_source.get_token() : control.stop;
        const base::BindStop halt(alone ? stop : std::stop_token());
        RequestStage stage{
            state, control,  requests, denoising, decoder, *world, alone ? nullptr : group.get(),
            *pair, *latents, *urgent,  stop};
        decodes ? stage.decode() : stage.denoise();
        for (QueuedRequest& queued : requests) state.ranks().gather(world, queued.result.report);
      });
  for (QueuedRequest& queued : requests) name_decoders(plan, queued.result.report);
}

}  // namespace tessera::diffusion
