#include "admission/expected_time.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "diffusion/sizes.h"
#include "kernels/probe.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "parallel/reuse/rules.h"

namespace tessera::admission {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr double kLong = 20;              // seconds worth an announcement
constexpr double kWorthMeasuring = 2e10;  // FLOP; below, the slowest machine needs seconds

Tensor filled(const tensor::Shape& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = static_cast<float>(i * 37 % 251) / 251 - 0.5f;
  return ops::cast(x, dtype);
}

// Rate of `f` for `rows`; few at first, because machines differ by a factor of a thousand.
template <class F>
double rate_of(int64_t rows, const F& work_and_seconds) {
  const auto [work, seconds] = work_and_seconds(std::max<int64_t>(rows / 16, 16));
  if (seconds > 0.02) return work / seconds;
  const auto [more, longer] = work_and_seconds(rows);
  return more / longer;
}

bool is_product(const std::string& op) {
  return op == "matmul" || op == "experts" || op.find("conv") != std::string::npos;
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (seconds < 10) return fmt::format("{:.2g} s", seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

Rates measure_rates(DType dtype) {
  constexpr int64_t kWidth = 1152, kHeads = 16;
  const int64_t rows = 256 * std::max(1, tensor::thread_count());
  tensor::Scope aside;  // outside any request's work and memory
  aside.pool = tensor::current_scope().pool;
  const tensor::BindScope probing(aside);
  Rates rates;
  const Tensor weight = filled({kWidth, kWidth}, dtype);
  rates.packing =
      double(weight.bytes()) / kernels::best_seconds([&] { ops::pack_weight(weight, dtype); }, 2);
  const ops::Weight packed = ops::pack_weight(weight, dtype);
  rates.products = rate_of(rows, [&](int64_t m) {
    const Tensor x = filled({m, kWidth}, dtype);
    return std::pair(2.0 * double(m) * kWidth * kWidth,
                     kernels::best_seconds([&] { ops::matmul(x, packed); }, 2));
  });
  rates.attention = rate_of(rows, [&](int64_t m) {
    const Tensor x = filled({m, kWidth}, dtype);
    const ops::AttentionSpan span{0, m, 0, m};
    return std::pair(4.0 * double(m) * double(m) * kWidth,
                     kernels::best_seconds(
                         [&] {
                           ops::attention(x, x, x, kHeads, kHeads, {&span, 1});
                         },
                         2));
  });
  rates.elements = rate_of(rows, [&](int64_t m) {
    const Tensor x = filled({m, kWidth}, dtype);
    return std::pair(3.0 * double(x.bytes()), kernels::best_seconds([&] { ops::add(x, x); }, 2));
  });
  return rates;
}

double seconds_of(const diffusion::Work& work, const Rates& rates) {
  double seconds = 0;
  for (const auto& [op, entry] : work) {
    if (is_product(op))
      seconds += entry.flops / rates.products;
    else if (op == "attention" || op == "biased_attention")
      seconds += entry.flops / rates.attention;
    else
      seconds += entry.bytes / rates.elements;
  }
  return seconds;
}

std::string ExpectedTime::sentence() const {
  std::string rest;
  if (text >= 1) rest += ", text " + duration(text);
  if (load >= 1) rest += ", loading " + duration(load);
  if (decode >= 1) rest += ", decoding " + duration(decode);
  return fmt::format("about {} a step, {} in all ({} step{}{})", duration(step), duration(whole()),
                     steps, steps == 1 ? "" : "s", rest);
}

namespace {

// Encoding runs before the transformer is read.
void add_encoding(diffusion::MemoryNeed& sum, const diffusion::MemoryNeed& need) {
  sum.peak = std::max(sum.peak, need.peak);
  for (const auto& [op, entry] : need.work) {
    sum.work[op].calls += entry.calls;
    sum.work[op].flops += entry.flops;
    sum.work[op].bytes += entry.bytes;
  }
}

}  // namespace

RunNeed run_need(const runtime::ModelState& state, const diffusion::Job& job, bool decode) {
  diffusion::check_tokens(job.planned.layout,
                          int64_t{job.samples()} * (job.planned.guidance.branches() ? 2 : 1));
  RunNeed need;
  RunOptions single_rank = state.options;
  single_rank.plan = {};
  const DryRun prediction = dry_run(state, single_rank, job);
  need.denoise = {prediction.weights, prediction.process - prediction.weights, prediction.process,
                  0, prediction.work};
  for (const diffusion::Text& text : job.asked.texts) {
    need.text.stored += text.need.stored;
    add_encoding(need.text, text.need);
  }
  if (job.asked.source) add_encoding(need.text, dry_run_encode(state, job, *job.asked.source, {}));
  if (state.has_vae())
    for (const diffusion::SourceImage& image : job.asked.references)
      add_encoding(need.text, dry_run_encode(state, job, image, {}));
  if (decode && state.has_vae()) {
    need.decode = dry_run_decode(state, job, {});
    const int64_t inputs = input_bytes(job);  // texts stay until the end
    need.decode.activations += inputs;
    need.decode.peak += inputs;
  }
  need.peak = std::max({need.denoise.peak, need.text.peak, need.decode.peak});
  need.samples = job.samples();
  need.steps = job.planned.sampler->steps();
  if (job.planned.step_cache)
    need.computed_share =
        parallel::computed_share(*job.planned.step_cache, state.geometry().blocks, need.steps)
            .value_or(1);
  return need;
}

ExpectedTime expected_time(const RunNeed& need, const Rates& rates) {
  ExpectedTime time;
  // Text encoders pack their weights during the run, a layer at a time.
  time.text = seconds_of(need.text.work, rates) + double(need.text.stored) / rates.packing;
  time.load = double(need.denoise.weights) / rates.packing;
  time.step = seconds_of(need.denoise.work, rates) * need.computed_share;
  time.decode = need.samples * seconds_of(need.decode.work, rates);
  time.steps = need.steps;
  return time;
}

void announce(const runtime::ModelState& state, const diffusion::Job& job, bool decode,
              const RunControl& control) {
  if (!control.on_note || state.device() != tensor::Device::cpu) return;
  const RunNeed need = run_need(state, job, decode);
  double flops = diffusion::flops_of(need.denoise.work) * need.steps * need.computed_share;
  for (const diffusion::Work* work : {&need.text.work, &need.decode.work})
    flops += diffusion::flops_of(*work);
  if (flops < kWorthMeasuring) return;
  const tensor::BindScope bind(state.workers.scope());
  ExpectedTime time = expected_time(need, measure_rates(state.dtype()));
  time.step /= double(state.ranks().size()) / state.ranks().count_here();
  if (time.whole() >= kLong) control.on_note("expects " + time.sentence());
}

}  // namespace tessera::admission
