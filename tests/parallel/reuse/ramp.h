#pragma once

#include <string>
#include <vector>

#include "nn/local.h"
#include "parallel/denoise.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// Three blocks over a token of two channels. In step i, block 0 adds first[i], block 1 adds
/// second[i] and block 2 adds 1; the prediction is the sum. Each block has an attention.
class Ramp : public nn::Denoiser {
 public:
  explicit Ramp(std::vector<float> first, std::vector<float> second = {})
      : first_(std::move(first)), second_(std::move(second)) {
    second_.resize(first_.size(), 1);
    geometry_.blocks = 3;
    geometry_.channels_in = geometry_.channels_out = 2;
    for (int b = 0; b < 3; ++b)
      geometry_.attention.push_back({.block = b, .heads = 1, .kv_heads = 1, .head_dim = 2});
  }
  const nn::Geometry& geometry() const override { return geometry_; }
  tensor::DType dtype() const override { return tensor::DType::f32; }
  nn::ContextPtr prepare(const nn::Conditioning&, const nn::TokenShape&) const override {
    return std::make_shared<NoContext>();
  }
  nn::PlacementPtr place(const nn::Context&, const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::StepContextPtr at(const nn::Context&, const tensor::Tensor&) const override {
    ++step_;
    return std::make_shared<NoStep>();
  }
  nn::Hidden embed(const nn::Placement&, const tensor::Tensor& x) const override {
    return {.tokens = {.prefix = {}, .body = row(x.size(0), 0)}, .skips = {}};
  }
  void block(int index, const nn::StepContext&, const nn::Placement&, nn::Hidden& hidden,
             const nn::Seams&) const override {
    const auto i = static_cast<size_t>(step_);
    add(hidden.tokens.body, index == 0 ? first_.at(i) : index == 1 ? second_.at(i) : 1);
  }
  tensor::Tensor head(const nn::StepContext&, const nn::Placement&,
                      const nn::Hidden& hidden) const override {
    predicted.push_back(hidden.tokens.body.to_floats().at(0));
    return hidden.tokens.body;
  }
  tensor::Tensor first_input(const nn::StepContext&, const nn::Placement&, const nn::Hidden&,
                             const nn::Seams&) const override {
    return row(1, first_.at(static_cast<size_t>(step_)));
  }

  mutable std::vector<float> predicted;

  /// Runs all steps with a rule ("": none) and returns the log.
  StepReuse::Log run(const std::string& rule, int branches = 1) const {
    step_ = -1;
    predicted.clear();
    const auto flow = sample::rectified_flow(static_cast<int>(first_.size()));
    Workload work{.samples = 1, .grid = {1, 1, 1}, .branches = branches, .steps = flow->steps()};
    if (!rule.empty()) work.step_cache = parse_step_cache(rule);
    Setup setup({}, geometry_, work);
    const auto none = [](int) { return tensor::Tensor(); };
    const Guidance guidance{branches == 2 ? 2.0f : 1.0f, 2};
    last = denoise(*this, {}, *flow, guidance, row(1, 1), none, setup, {}).to_floats();
    negative = setup.reuse.size() > 1 ? setup.reuse[1]->log() : StepReuse::Log{};
    return setup.reuse.empty() ? StepReuse::Log{} : setup.reuse.front()->log();
  }
  mutable std::vector<float> last;
  mutable StepReuse::Log negative;  // the log of a branch that decides apart

 protected:
  static tensor::Tensor row(int64_t tokens, float value) {
    const std::vector<float> values(static_cast<size_t>(tokens * 2), value);
    return tensor::Tensor::from(std::span<const float>(values), {tokens, 2});
  }
  static void add(tensor::Tensor& x, float value) {
    std::vector<float> values = x.to_floats();
    for (float& v : values) v += value;
    x = tensor::Tensor::from(std::span<const float>(values), x.shape());
  }
  int step() const { return step_; }

 private:
  struct NoContext : nn::Context {};
  struct NoStep : nn::StepContext {};
  std::vector<float> first_, second_;
  nn::Geometry geometry_;
  mutable int step_ = -1;
};

/// The number of blocks of each step, such as "3 1 0".
inline std::string counts(const StepReuse::Log& log) {
  std::string text;
  for (const std::vector<int>& blocks : log.computed)
    text += (text.empty() ? "" : " ") + std::to_string(blocks.size());
  return text;
}

}  // namespace tessera::parallel
