#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <regex>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "diffusion/conditioning.h"
#include "models/tiny_model.h"
#include "models/tiny_networks.h"
#include "parallel/denoise.h"
#include "whole/plans/spread_network.h"

namespace tessera {

/// The slowdown of a rank: a factor of a block's time, and a minimum.
struct Pace {
  double times = 1;
  std::chrono::milliseconds least{0};
};

/// A network with slowed blocks, in tasks counted as work.
class Paced : public nn::Denoiser {
 public:
  Paced(const nn::Denoiser& inner, const Pace& pace) : inner_(inner), pace_(pace) {}
  Paced(std::unique_ptr<nn::Denoiser> inner, const Pace& pace)
      : own_(std::move(inner)), inner_(*own_), pace_(pace) {}
  std::unique_ptr<nn::Denoiser> with(nn::Gather& gather) const override {
    auto inner = inner_.with(gather);
    return inner ? std::make_unique<Paced>(std::move(inner), pace_) : nullptr;
  }
  const nn::Geometry& geometry() const override { return inner_.geometry(); }
  tensor::DType dtype() const override { return inner_.dtype(); }
  std::string block_name(int index) const override { return inner_.block_name(index); }
  nn::ContextPtr prepare(const nn::Conditioning& c, const nn::TokenShape& shape) const override {
    return inner_.prepare(c, shape);
  }
  nn::PlacementPtr place(const nn::Context& context, const nn::TokenView& view) const override {
    return inner_.place(context, view);
  }
  nn::StepContextPtr at(const nn::Context& context, const tensor::Tensor& time) const override {
    return inner_.at(context, time);
  }
  nn::Hidden embed(const nn::Placement& placement, const tensor::Tensor& latent) const override {
    return inner_.embed(placement, latent);
  }
  tensor::Tensor head(const nn::StepContext& step, const nn::Placement& placement,
                      const nn::Hidden& hidden) const override {
    return inner_.head(step, placement, hidden);
  }
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override {
    const base::Stopwatch clock;
    inner_.block(index, step, placement, hidden, seams);
    const double wish =
        std::max(pace_.times * clock.seconds(), std::chrono::duration<double>(pace_.least).count());
    for (double left = wish - clock.seconds(); left > 0; left = wish - clock.seconds())
      tensor::parallel_tasks(
          1, [&](int64_t) { usleep(static_cast<useconds_t>(1e6 * std::min(left, 0.02)) + 1); });
  }

 private:
  const std::unique_ptr<const nn::Denoiser> own_;
  const nn::Denoiser& inner_;
  const Pace pace_;
};

/// A rank's part of denoising an image of 128 tokens with a small network, under a plan of stages
/// and patches.
class StagedRun {
 public:
  /// `more`: additional blocks of the network, beyond the other tests.
  StagedRun(const models::Network& network, int more, const std::string& plan, int rank)
      : model_(network.type, deeper(network.json(network.head_dim), more).c_str()),
        plan_(parse_plan(plan)),
        layout_(model_.spec.layout(16, 32, 0)),
        conditioning_(model_.conditioning(1, network.text)) {
    if (plan_.shard > 1)
      portion_ =
          shard_network(model_.spec, plan_, model_.network->geometry(), rank, tensor::DType::f32);
    else if (plan_.pipefusion > 1)
      portion_ = model_.spec.make(models::NamedNoise(),
                                  parallel::portion_of(plan_, model_.network->geometry(), rank),
                                  tensor::DType::f32);
  }
  /// The final latent, on the last rank; empty elsewhere.
  tensor::Tensor operator()(int steps, comm::Communicator* world, const Pace& pace = {}) const {
    const Paced network(portion_ ? *portion_ : *model_.network, pace);
    const parallel::Workload work{.samples = 1,
                                  .grid = layout_.grid(),
                                  .branches = 1,
                                  .steps = steps,
                                  .prefix = model_.spec.prefix(conditioning_)};
    parallel::Setup setup(plan_, network.geometry(), work, world);
    const std::vector<int> mine = setup.partition.sequences(setup.rank);
    return parallel::denoise(network, diffusion::take_sequences(conditioning_, mine),
                             *sample::rectified_flow(steps),
                             {1, model_.spec.guided_channels, model_.spec.guided_channels},
                             setup.partition.cut(model_.latent(1, layout_), setup.rank),
                             [](int) { return tensor::Tensor(); }, setup, {});
  }

 private:
  static std::string deeper(const std::string& json, int more) {
    std::smatch found;
    std::regex_search(json, found, std::regex(R"("num_layers": (\d+))"));
    return found.prefix().str() + "\"num_layers\": " + std::to_string(std::stoi(found[1]) + more) +
           found.suffix().str();
  }

  models::TinyModel model_;
  Plan plan_;
  nn::TokenLayout layout_;
  nn::Conditioning conditioning_;
  std::unique_ptr<nn::Denoiser> portion_;
};

}  // namespace tessera
