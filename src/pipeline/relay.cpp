#include "pipeline/relay.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "parallel/spatial/bands.h"
#include "pipeline/gather_reports.h"
#include "pipeline/launch.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr comm::Tag kLatents{"latents", -1}, kImage{"image", -1};

// Of a sample's images u8 [frames, height, width, 3]; on meta [frames, bytes].
Tensor packed(const Decoded& made, size_t first, size_t frames) {
  const auto count = static_cast<int64_t>(frames);
  if (made.images.empty())
    return Tensor::empty({count, made.pixels[first].elements()}, DType::u8, tensor::Device::meta);
  const Image& any = made.images[first];
  Tensor all = Tensor::empty({count, any.height, any.width, 3}, DType::u8);
  for (size_t t = 0; t < frames; ++t) {
    const std::vector<uint8_t>& rgb = made.images[first + t].rgb;
    std::memcpy(static_cast<uint8_t*>(all.raw()) + t * rgb.size(), rgb.data(), rgb.size());
  }
  return all;
}

// `video`: its number, or -1.
void unpack(const Tensor& x, const std::string& label, int video, Decoded& into) {
  const auto bytes = static_cast<size_t>(x.elements() / x.size(0));
  for (int64_t t = 0; t < x.size(0); ++t) {
    into.pixels.push_back(
        Tensor::empty({static_cast<int64_t>(bytes)}, DType::u8, tensor::Device::meta));
    if (x.is_meta()) continue;
    const auto* const rgb = static_cast<const uint8_t*>(x.raw()) + static_cast<size_t>(t) * bytes;
    into.images.push_back(
        {x.size(2), x.size(1), {rgb, rgb + bytes}, label, video, static_cast<int>(t)});
  }
}

/// Rank 0's end of it: latents go, images come.
class Relay {
 public:
  Relay(comm::Communicator& all, int decoder, bool video, std::stop_token stop)
      : all_(all), decoder_(decoder), video_(video), stop_(std::move(stop)) {}
  void give(Order& order, const Job& part, const Tensor& tokens) {
    take();
    all_.send(decoder_, tokens, kLatents);
    const int messages = part.samples() + (order.trace.wanted() ? 1 : 0);
    for (int i = 0; i < messages; ++i) coming_.push_back(all_.receive(decoder_, kImage));
    order_ = &order;
    part_ = &part;
  }
  /// What is on its way.
  void take() {
    for (size_t i = 0; i < coming_.size(); ++i) {
      require(!stop_.stop_requested(), ErrorCode::cancelled, "stopped before image {} of {}",
              part_->first_sample + std::min(static_cast<int>(i) + 1, part_->samples()),
              order_->job.samples());
      const Tensor x = coming_[i].wait();
      const auto sample = static_cast<int>(i);
      Decoded& made = order_->made;
      if (sample < part_->samples())
        unpack(x, part_->labels[i], video_ ? part_->first_sample + sample : -1, made);
      else
        made.numbers = made.numbers.defined() ? ops::concat_rows({made.numbers, x}) : x;
    }
    coming_.clear();
  }

 private:
  comm::Communicator& all_;
  int decoder_;
  bool video_;
  std::stop_token stop_;
  Order* order_ = nullptr;
  const Job* part_ = nullptr;
  std::vector<comm::Pending> coming_;
};

/// A rank in its half.
struct Half {
  ModelState& state;
  const RunControl& control;
  std::deque<Order>& orders;
  std::deque<Denoising>& denoising;  ///< of each order
  const SharedDecoder& decoder;
  comm::Communicator& all;
  comm::Communicator* mine;  ///< ranks of this half; null: one

  void denoise();
  void decode();
  void each(const std::function<void(Order& order, Denoising& denoising)>& run, int64_t weights);
  void decode_part(const Order& order, const Job& part, nn::Spatial& spatial);
  bool first() const { return !mine || mine->rank() == 0; }
};

// The orders one after the other, in the scope and the report of each.
void Half::each(const std::function<void(Order& order, Denoising& denoising)>& run,
                int64_t weights) {
  for (size_t i = 0; i < orders.size(); ++i) {
    const auto before = i == 0 ? orders[i].job.sent_before : all.ledger().entries();
    const tensor::BindScope bind(state.workers.scope(all.rank(), &orders[i].job.meters));
    run(orders[i], denoising[i]);
    denoising[i].end(all.rank(), &all, before, weights);
  }
}

void Half::denoise() {
  Relay relay(all, state.options.plan.world(), state.video(), control.stop);
  const auto run = [&](Order& order, Denoising& steps) {
    std::vector<Tensor> latents;
    for (const Job& part : order.parts) {
      latents.push_back(steps.run(mine, part, &all));
      if (first()) relay.give(order, part, latents.back());
    }
    if (!first()) return;
    order.tokens = ops::concat_rows(latents);
    if (&order != &orders.back()) return;
    const base::Stopwatch waiting;
    const int samples = order.job.samples();
    const auto tell = [&](int done) {
      if (control.on_progress)
        control.on_progress({Phase::decode, done, samples, waiting.seconds()});
    };
    tell(samples - order.parts.back().samples());
    relay.take();
    order.result.report.phase_seconds[Phase::decode] = waiting.seconds();
    tell(samples);
  };
  each(run, 0);
}

void Half::decode_part(const Order& order, const Job& part, nn::Spatial& spatial) {
  const Tensor tokens = first() ? all.receive(0, kLatents).wait() : Tensor();
  RunControl quiet;
  quiet.stop = control.stop;
  const Decoded made = decode_share(state, quiet, part, mine ? std::nullopt : order.job.tiles,
                                    tokens, *decoder.decoder, spatial, mine, order.trace.wanted());
  if (!first()) return;
  const size_t frames = made.pixels.size() / static_cast<size_t>(part.samples());
  for (size_t at = 0; at < made.pixels.size(); at += frames)
    all.send(0, packed(made, at, frames), kImage);
  if (order.trace.wanted()) all.send(0, made.numbers, kImage);
}

void Half::decode() {
  const bool heeds = first() || state.options.processes;
  const auto run = [&](Order& order, Denoising&) {
    const int64_t chunk = order.job.vae_chunk;
    nn::LocalSpatial whole(chunk);
    std::optional<parallel::Bands> bands;
    if (mine) bands.emplace(*mine, heeds ? control.stop : std::stop_token(), chunk);
    for (const Job& part : order.parts)
      decode_part(order, part, mine ? static_cast<nn::Spatial&>(*bands) : whole);
  };
  each(run, decoder.weights);
}

// What decoders did is said as such.
void name_decoders(const Plan& plan, Report& report) {
  for (size_t r = static_cast<size_t>(plan.world()); r < report.per_rank.size(); ++r) {
    Report::Rank& rank = report.per_rank[r];
    rank.decode_peak_bytes = std::exchange(rank.peak_bytes, {});
    rank.decode_flops = std::exchange(rank.flops, 0);
  }
}

}  // namespace

void run_halves(ModelState& state, const RunControl& control, std::deque<Order>& orders,
                const SharedDecoder& decoder) {
  const Plan& plan = state.options.plan;
  std::deque<Denoising> denoising;
  for (Order& order : orders)
    denoising.emplace_back(state, order.request, control, order.job, order.trace,
                           order.result.report);
  launch_ranks(state, orders.front().job.meters, control.stop, [&](comm::Communicator* all) {
    const bool decodes = all->rank() >= plan.world();
    std::vector<int> members(static_cast<size_t>(decodes ? plan.vae : plan.world()));
    std::iota(members.begin(), members.end(), decodes ? plan.world() : 0);
    const auto group = all->group(members);
    const bool alone = members.size() == 1;
    const base::BindStop halt(alone ? control.stop : std::stop_token());
    Half half{state, control, orders, denoising, decoder, *all, alone ? nullptr : group.get()};
    decodes ? half.decode() : half.denoise();
    if (state.options.processes)
      for (Order& order : orders) gather_reports(*all, order.result.report);
  });
  for (Order& order : orders) name_decoders(plan, order.result.report);
}

}  // namespace tessera::pipeline
