#include "study/bench_products.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "ops/attention.h"
#include "ops/biased_attention.h"
#include "ops/conv.h"
#include "ops/experts.h"
#include "ops/matmul.h"

namespace tessera::study {
namespace {

using tensor::DType;
using tensor::Tensor;

void bench_matmul(const Bench& b, DType dtype) {
  for (const auto& [rows, n, k] : {std::tuple<int64_t, int64_t, int64_t>{256, 1152, 1152},
                                   {512, 3456, 1152},
                                   {1024, 4608, 1152},
                                   {2048, 3072, 768}}) {
    const int64_t m = b.many(rows);
    const Tensor x = b.filled({m, k}, dtype);
    const ops::Weight w = ops::pack_weight(b.filled({n, k}, dtype), dtype);
    const double s = b.seconds([&] { ops::matmul(x, w); }, 7);
    const double flops = 2.0 * double(m) * double(n) * double(k);
    const std::string shape = fmt::format("{}x{}x{}", m, n, k);
    if (dtype == DType::bf16)
      b.products("matmul_bf16", shape, flops, s);
    else
      b.products_f32("matmul_f32", shape, flops, s);
  }
}

// Epilogues of a product: a bias and GELU, SwiGLU, a gated residual.
void bench_epilogues(const Bench& b) {
  const int64_t m = b.many(512), n = 4608, k = 1152;
  const Tensor x = b.filled({m, k}, DType::bf16), weight = b.filled({n, k}, DType::bf16);
  const double flops = 2.0 * double(m) * double(n) * double(k);
  const std::string shape = fmt::format("{}x{}x{}", m, n, k);
  const ops::Weight w = ops::pack_weight(weight, DType::bf16);
  ops::MatmulOptions gelu;
  gelu.bias = b.filled({n}, DType::f32);
  gelu.activation = ops::Activation::gelu_tanh;
  b.products("matmul_bias_gelu_bf16", shape, flops, b.seconds([&] { ops::matmul(x, w, gelu); }, 5));
  const ops::Weight pair = ops::pack_paired_weight(weight, weight, DType::bf16);
  ops::MatmulOptions swiglu;
  swiglu.activation = ops::Activation::swiglu;
  b.products("matmul_swiglu_bf16", shape, 2 * flops,
             b.seconds([&] { ops::matmul(x, pair, swiglu); }, 5));
  ops::MatmulOptions gated;
  gated.gate = b.filled({1, n}, DType::f32);
  gated.residual = b.filled({m, n}, DType::bf16);
  b.products("matmul_gated_residual_bf16", shape, flops,
             b.seconds([&] { ops::matmul(x, w, gated); }, 5));
}

void bench_attention(const Bench& b) {
  for (const auto& [base_tokens, heads, dim, dtype] :
       {std::tuple<int64_t, int, int, DType>{256, 16, 72, DType::bf16},
        {1024, 16, 72, DType::bf16},
        {1024, 24, 64, DType::bf16},
        {1024, 24, 128, DType::bf16},
        {512, 1, 512, DType::bf16},
        {256, 16, 64, DType::f32}}) {
    const int64_t tokens = b.many(base_tokens);
    const Tensor q = b.filled({tokens, heads * dim}, dtype);
    const ops::AttentionSpan span{0, tokens, 0, tokens};
    const int h = heads;
    const double s = b.seconds([&] { ops::attention(q, q, q, h, h, {&span, 1}); }, 5);
    const double flops = 4.0 * double(tokens) * double(tokens) * heads * dim;
    const std::string shape = fmt::format("{}x{}x{}", tokens, heads, dim);
    if (dtype == DType::bf16)
      b.products("attention_bf16", shape, flops, s);
    else
      b.products_f32("attention_f32", shape, flops, s);
  }
}

// A text of T5 has the same length on every machine.
void bench_biased_attention(const Bench& b) {
  const int64_t tokens = std::min<int64_t>(512, b.many(512)), heads = 64, dim = 64;
  const Tensor q = b.filled({tokens, heads * dim}, DType::bf16);
  const Tensor bias = b.filled({heads, 2 * tokens - 1}, DType::f32);
  const double s = b.seconds([&] { ops::biased_attention(q, q, q, heads, bias, tokens); }, 3);
  b.products("biased_attention_bf16", fmt::format("{}x{}x{}", tokens, heads, dim),
             4.0 * double(tokens) * double(tokens) * double(heads * dim), s);
}

void bench_experts(const Bench& b) {
  const int64_t hidden = 1024, inner = 1024, count = 16;
  for (DType dtype : {DType::bf16, DType::i8}) {
    std::vector<ops::Expert> bank;
    int64_t bytes = 0;
    const Tensor w = b.filled({inner, hidden}, DType::bf16);
    for (int64_t e = 0; e < count; ++e) {
      bank.push_back({ops::pack_paired_weight(w, w, dtype), ops::pack_weight(w, dtype)});
      bytes += 3 * w.elements() * size_of(dtype);
    }
    for (int64_t base_tokens : {16, 64, 512}) {
      const int64_t tokens = b.many(base_tokens);
      const Tensor x = b.filled({tokens, hidden}, DType::bf16);
      const ops::Routing routing = ops::route(b.filled({tokens, count}, DType::f32), {.top_k = 4});
      const double s = b.seconds([&] { ops::experts(x, routing, bank); }, 5);
      const double flops = 6.0 * double(tokens * 4) * double(hidden) * double(inner);
      b.line(fmt::format(
          R"({{"bench":"experts_{}","shape":"{}x{}x{}, top 4 of {}","ms":{:.4f},"gflops":{:.1f},)"
          R"("share_of_peak":{:.3f},"share_of_bandwidth":{:.3f}}})",
          tensor::name_of(dtype), tokens, hidden, inner, count, s * 1e3, flops / s / 1e9,
          flops / s / b.peak, double(bytes) / s / b.bandwidth));
    }
  }
}

void bench_conv(const Bench& b) {
  for (const auto& [rows, channels, filter] :
       {std::tuple<int64_t, int64_t, int64_t>{64, 512, 3}, {256, 128, 3}, {128, 256, 1}}) {
    const auto side = static_cast<int64_t>(double(rows) * std::sqrt(std::min(b.size, 4.0)));
    const Tensor x = b.filled({1, side, side, channels}, DType::bf16);
    const ops::ConvWeight w =
        ops::pack_conv(b.filled({channels, channels, filter, filter}, DType::f32), {}, DType::bf16);
    ops::Conv2dOptions options;
    options.pad_top = options.pad_bottom = options.pad_left = options.pad_right =
        static_cast<int>(filter / 2);
    const double s = b.seconds([&] { ops::conv2d(x, w, options); }, 5);
    b.products(
        fmt::format("conv{0}x{0}_bf16", filter), fmt::format("{}x{}x{}", side, side, channels),
        2.0 * double(filter * filter) * double(side * side) * double(channels * channels), s);
  }
}

}  // namespace

void bench_products(const Bench& bench) {
  bench_matmul(bench, DType::bf16);
  bench_matmul(bench, DType::f32);
  bench_epilogues(bench);
  bench_attention(bench);
  bench_biased_attention(bench);
  bench_experts(bench);
  bench_conv(bench);
}

}  // namespace tessera::study
