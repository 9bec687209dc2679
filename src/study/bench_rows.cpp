#include "study/bench_rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/fail.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "ops/finite.h"
#include "ops/norm.h"
#include "ops/permute.h"
#include "ops/plane_affine.h"
#include "ops/rope.h"
#include "ops/routing.h"
#include "ops/sampling.h"
#include "tensor/scope.h"

namespace tessera::study {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int kTimes = 5;

std::string rows_by(const Tensor& x) { return fmt::format("{}x{}", x.size(0), x.size(1)); }

void bench_norms(const Bench& b) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{8192, 1152}, {4096, 3072}}) {
    const Tensor x = b.filled({b.many(rows), width}, DType::bf16);
    ops::NormOptions options;
    options.shift = options.scale = b.filled({1, width}, DType::f32);
    b.moves("layer_norm_bf16", rows_by(x), 2.0 * double(x.bytes()),  // read and written
            b.seconds([&] { ops::layer_norm(x, options); }, kTimes));
  }
  const Tensor x = b.filled({b.many(2048), 24 * 128}, DType::bf16);
  ops::NormOptions heads;
  heads.weight = b.filled({128}, DType::f32);
  heads.width = 128;
  b.moves("rms_norm_of_heads_bf16", rows_by(x), 2.0 * double(x.bytes()),
          b.seconds([&] { ops::rms_norm(x, heads); }, kTimes));
}

void bench_rope(const Bench& b) {
  const int64_t tokens = b.many(2048), dim = 128;
  const Tensor x = b.filled({tokens, 24 * dim}, DType::bf16);
  const ops::RotaryTable table{b.filled({tokens, dim / 2}, DType::f32),
                               b.filled({tokens, dim / 2}, DType::f32)};
  b.moves("rope_bf16", rows_by(x), 2.0 * double(x.bytes() + table.cos.bytes()),
          b.seconds([&] { ops::rope(x, table, dim, ops::RotaryPairs::neighbours); }, kTimes));
}

void bench_elementwise(const Bench& b) {
  const Tensor x = b.filled({b.many(4096), 3072}, DType::bf16);
  const double bytes = double(x.bytes());
  b.moves("cast_bf16_to_f32", rows_by(x), 3 * bytes,
          b.seconds([&] { ops::cast(x, DType::f32); }, kTimes));
  b.moves("gelu_tanh_bf16", rows_by(x), 2 * bytes, b.seconds([&] { ops::gelu_tanh(x); }, kTimes));
  b.moves("swiglu_bf16", rows_by(x), 3 * bytes, b.seconds([&] { ops::swiglu(x, x); }, kTimes));
  const Tensor gate = b.filled({1, 3072}, DType::f32);
  const ops::RowMap row_of(std::vector<int32_t>(static_cast<size_t>(x.size(0))), x.device());
  b.moves("add_gated_bf16", rows_by(x), 3 * bytes,
          b.seconds([&] { ops::add_gated(x, x, gate, row_of); }, kTimes));
  const Tensor t = b.filled({b.many(64)}, DType::f32);
  b.moves("timestep_embedding_f32", fmt::format("{}x256", t.size(0)),
          double(t.size(0)) * 256 * sizeof(float),
          b.seconds([&] { ops::timestep_embedding(t, 256); }, kTimes));
}

void bench_routing(const Bench& b) {
  const int64_t tokens = b.many(2048);
  for (int64_t experts : {8, 64, 256}) {
    const Tensor logits = b.filled({tokens, experts}, DType::f32);
    const int k = experts == 8 ? 2 : 8;
    b.moves("route_f32", fmt::format("{}x{}, top {}", tokens, experts, k),
            double(logits.bytes()) + double(tokens) * 8 * k,
            b.seconds([&] { ops::route(logits, {.top_k = k}); }, kTimes));
  }
  const int64_t slots = 8;
  const Tensor rows = b.filled({tokens * slots, 2048}, DType::bf16);
  const Tensor weights = b.filled({tokens, slots}, DType::f32);
  b.moves("combine_bf16", fmt::format("{}x{}, of {}", tokens, 2048, slots),
          double(rows.bytes()) * (1 + 1.0 / double(slots)),
          b.seconds([&] { ops::combine_rows(rows, weights); }, kTimes));
}

void bench_copies(const Bench& b) {
  const int64_t side = static_cast<int64_t>(64 * std::sqrt(b.size)) / 2 * 2, channels = 64;
  const Tensor x = b.filled({side * side, channels}, DType::bf16);
  const int64_t sizes[] = {side / 2, 2, side / 2, 2, channels};
  const int order[] = {0, 2, 4, 1, 3};
  b.moves("permute_to_patches_bf16", rows_by(x), 2.0 * double(x.bytes()),
          b.seconds(
              [&] {
                ops::permute(x, sizes, order, {side * side / 4, 4 * channels});
              },
              kTimes));
  const Tensor table = b.filled({4096, 2048}, DType::bf16);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < b.many(4096); ++i) ids.push_back(static_cast<int32_t>(i * 977 % 4096));
  b.moves("gather_rows_bf16", fmt::format("{}x2048", ids.size()), 2.0 * double(ids.size()) * 4096,
          b.seconds([&] { ops::gather_rows(table, ids, DType::bf16); }, kTimes));
  const Tensor spread = Tensor::empty({4096, 2048}, DType::bf16, b.device);
  const std::span<const int32_t> few(ids.data(), std::min<size_t>(ids.size(), 4096));
  b.moves("move_rows_bf16", fmt::format("{}x2048", few.size()), 2.0 * double(few.size()) * 4096,
          b.seconds([&] { ops::move_rows(table, few, spread, few); }, kTimes));
  const Tensor text = b.filled({b.many(512), 3072}, DType::bf16);
  const Tensor image = b.filled({b.many(4096), 3072}, DType::bf16);
  b.moves("concat_rows_bf16", rows_by(image), 2.0 * double(text.bytes() + image.bytes()),
          b.seconds(
              [&] {
                ops::concat_rows({text, image});
              },
              kTimes));
}

// A latent has few elements compared with the traffic of a network's block.
void bench_samplers(const Bench& b) {
  const int64_t tokens = b.many(4096), n = 64;
  const Tensor x = b.filled({tokens, n}, DType::f32), out = b.filled({tokens, 2 * n}, DType::f32);
  const auto bytes = double(x.bytes());
  const std::vector<Tensor> earlier = {x};
  const ops::LinearStepCoefficients linear{
      .from_x = 1, .from_out = -0.5, .x = 0.5, .estimates = {0.25, 0.25}, .noise = 0.1};
  b.moves("linear_step_f32", rows_by(x), 6 * bytes,
          b.seconds([&] { ops::linear_step(x, x, earlier, x, linear, true); }, kTimes));
  const ops::LearnedRangeCoefficients range{1, 0.5f, 0.5f, 0.5f, -2, -3};
  b.moves("learned_range_step_f32", rows_by(x), 5 * bytes,
          b.seconds([&] { ops::learned_range_step(x, out, x, range); }, kTimes));
  b.moves("flow_step_f32", rows_by(x), 3 * bytes,
          b.seconds([&] { ops::flow_step(x, x, 0.1f); }, kTimes));
  b.moves("guide_f32", rows_by(x), 3 * bytes, b.seconds([&] { ops::guide(x, x, 4, n); }, kTimes));
}

// The open positions of a language model's block, and the check of their logits.
void bench_peaks(const Bench& b) {
  const Tensor x = b.filled({b.many(32), 157184}, DType::f32);
  b.moves("peaks_f32", rows_by(x), double(x.bytes()), b.seconds([&] { ops::peaks(x, 0); }, kTimes));
  b.moves("all_finite_f32", rows_by(x), double(x.bytes()),
          b.seconds([&] { ops::all_finite(x); }, kTimes));
}

void bench_group_norm(const Bench& b) {
  const auto side = static_cast<int64_t>(256 * std::sqrt(b.size));
  const int64_t channels = 128;
  const Tensor x = b.filled({1, side, side, channels}, DType::bf16);
  const std::string shape = fmt::format("{}x{}x{}", side, side, channels);
  b.moves("channel_moments_bf16", shape, double(x.bytes()),
          b.seconds([&] { ops::channel_moments(x); }, kTimes));
  const Tensor factors = b.filled({1, 2, channels}, DType::f32);
  b.moves("channel_affine_silu_bf16", shape, 2.0 * double(x.bytes()),
          b.seconds([&] { ops::channel_affine(x, factors, true); }, kTimes));
  const Tensor weight = b.filled({channels}, DType::f32);
  b.moves("group_scale_shift_f32", fmt::format("1x{}", channels), 2.0 * double(factors.bytes()),
          b.seconds([&] { ops::group_scale_shift(factors, 32, weight, weight, 1e-6f); }, kTimes));
  const Tensor field = b.filled({1, side / 8, side / 8, channels}, DType::f32);
  b.moves("plane_affine_bf16", shape, 2.0 * double(x.bytes()),
          b.seconds([&] { ops::plane_affine(x, factors, field, field); }, kTimes));
}

}  // namespace

void bench_rows(const Bench& bench) {
  bench_norms(bench);
  bench_rope(bench);
  bench_elementwise(bench);
  bench_routing(bench);
  bench_copies(bench);
  bench_samplers(bench);
  bench_peaks(bench);
  bench_group_norm(bench);
}

}  // namespace tessera::study
