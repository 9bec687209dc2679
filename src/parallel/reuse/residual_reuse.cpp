#include "parallel/reuse/residual_reuse.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

Tensor difference(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return {};
  return ops::blend(a.contiguous(), 1, b.contiguous(), -1);
}

}  // namespace

ResidualReuse::ResidualReuse(Run run, int front, int back, int order)
    : StepReuse(std::move(run)),
      front_(first() + front),
      back_(end() - back),
      // cache-dit counts the first step as -1, and forms no differences before its step 2.
      body_(order, 3),
      prefix_(order, 3) {}

nn::Joint ResidualReuse::measured(const nn::Joint& tokens) const {
  return {.prefix = run_.reusable.joined ? tokens.prefix : Tensor(), .body = tokens.body};
}

void ResidualReuse::blocks(const Pass& pass) {
  nn::Joint& tokens = pass.hidden.tokens;
  run_blocks(pass, 0, first());
  const nn::Joint in = tokens;
  run_blocks(pass, first(), front_);
  const bool is_reused = reuses(pass, in) && has_result() && !run_.meta;
  const nn::Joint from = tokens;
  const bool text = back_ < end() && from.prefix.defined();  // heads read the latent alone
  if (is_reused) {
    tokens = {.prefix = text ? ops::add(from.prefix.contiguous(), prefix_.at(step())) : from.prefix,
              .body = ops::add(from.body.contiguous(), body_.at(step()))};
    skip_blocks(front_, back_);
  } else {
    run_blocks(pass, front_, back_);
    body_.update(difference(tokens.body, from.body), step());
    if (text) prefix_.update(difference(tokens.prefix, from.prefix), step());
  }
  run_blocks(pass, back_, end());
}

FirstBlockReuse::FirstBlockReuse(const StepCache& cache, Run run)
    : FirstBlockReuse(cache, std::move(run), 1, 0, 0) {}

FirstBlockReuse::FirstBlockReuse(const StepCache& cache, Run run, int front, int back, int order)
    : ResidualReuse(std::move(run), front, back, order), cache_(cache) {}

bool FirstBlockReuse::reuses(const Pass& pass, const nn::Joint& in) {
  const nn::Joint out = measured(pass.hidden.tokens), before = measured(in);
  const nn::Joint residual{.prefix = difference(out.prefix, before.prefix),
                           .body = difference(out.body, before.body)};
  if (residual_.body.defined() && hits(residual, residual_)) return true;
  residual_ = residual;
  return false;
}

bool FirstBlockReuse::hits(const nn::Joint& residual, const nn::Joint& before) {
  return change(residual, before) <= cache_.threshold;
}

int fixed_warmup(const StepCache& cache) {
  if (cache.mask.empty()) return cache.warmup;
  const auto zero = std::find(cache.mask.begin(), cache.mask.end(), false);
  return std::min(cache.warmup, static_cast<int>(zero - cache.mask.begin()));
}

DualBlockReuse::DualBlockReuse(const StepCache& cache, Run run)
    : FirstBlockReuse(cache, std::move(run), cache.first_blocks, cache.last_blocks, cache.taylor),
      warmup_(fixed_warmup(cache)) {}

bool DualBlockReuse::decides(const nn::Joint& residual, const nn::Joint& before) {
  const int i = step();
  if (i < warmup_ && i % cache_.warmup_interval == 0) return false;
  if (!cache_.mask.empty() && cache_.mask.at(static_cast<size_t>(i))) return false;
  if (cache_.mask_decides) return true;  // whatever the limits
  if (cache_.max_cached >= 0 && reused_ >= cache_.max_cached) return false;
  if (cache_.max_continuous >= 0 && in_a_row_ >= cache_.max_continuous) return false;
  const double changed = change(residual, before);
  return cache_.threshold > 0 && (cache_.threshold >= 1 || changed < cache_.threshold);
}

bool DualBlockReuse::hits(const nn::Joint& residual, const nn::Joint& before) {
  const bool hit = decides(residual, before);
  reused_ += hit ? 1 : 0;
  in_a_row_ = hit ? in_a_row_ + 1 : 0;
  return hit;
}

// A list for another number of steps is read at the nearest place, halves to even.
double MagnitudeRule::ratio(int step, int steps) const {
  const auto last = static_cast<double>(cache_.ratios.size() - 1);
  const double place = steps > 1 ? step * last / (steps - 1) : 0;
  return cache_.ratios.at(static_cast<size_t>(std::nearbyint(place)));
}

bool MagnitudeRule::reuses(int step, int steps, bool has_result) {
  decision_ = std::numeric_limits<double>::quiet_NaN();
  if (step < static_cast<int>(std::floor(cache_.retention * steps + 0.5))) return false;
  product_ *= ratio(step, steps);
  error_ += std::abs(1 - product_);
  ++count_;
  decision_ = error_;
  if (has_result && error_ <= cache_.threshold && count_ <= cache_.max_skip) return true;
  product_ = 1;
  error_ = count_ = 0;
  return false;
}

MagnitudeReuse::MagnitudeReuse(const StepCache& cache, Run run)
    : ResidualReuse(std::move(run), 0, 0), rule_(cache) {}

bool MagnitudeReuse::reuses(const Pass&, const nn::Joint&) {
  const bool hit = rule_.reuses(step(), steps(), has_result());
  log_.changes.back() = rule_.error();
  return hit;
}

ModulatedReuse::ModulatedReuse(const StepCache& cache, Run run)
    : ResidualReuse(std::move(run), 0, 0), cache_(cache) {}

bool ModulatedReuse::reuses(const Pass& pass, const nn::Joint&) {
  const Tensor before = input_;
  input_ = pass.model.first_input(pass.step, pass.placement, pass.hidden, pass.seams);
  if (before.defined()) {
    const double changed = change({.prefix = {}, .body = input_}, {.prefix = {}, .body = before});
    double value = 0;
    for (const double coefficient : cache_.coefficients) value = value * changed + coefficient;
    sum_ += value;
  }
  if (step() > 0 && step() + 1 < steps() && sum_ < cache_.threshold) return true;
  sum_ = 0;
  return false;
}

}  // namespace tessera::parallel
