#include <algorithm>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/probe.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/experts.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "tensor/scope.h"
#include "tessera/engine.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;
using Line = std::function<void(const std::string&)>;

// Values that neither cancel nor overflow; their pattern has a prime period.
Tensor filled(const tensor::Shape& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const float value = static_cast<float>(i * 7919 % 2039 - 1019) / 4096.0f;
    if (dtype == DType::bf16)
      x.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(value);
    else
      x.data<float>()[i] = value;
  }
  return x;
}

void report(const Line& line, const char* kernel, const std::string& shape, double flops,
            double seconds, double peak) {
  line(fmt::format(R"({{"bench":"{}","shape":"{}","gflops":{:.1f},"share_of_peak":{:.3f}}})",
                   kernel, shape, flops / seconds / 1e9, flops / seconds / peak));
}

void bench_matmul(const Line& line, DType dtype, double peak) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{256, 1152, 1152},
                                {512, 3456, 1152},
                                {1024, 4608, 1152},
                                {2048, 3072, 768}}) {
    const Tensor x = filled({m, k}, dtype);
    const ops::Weight w = ops::pack_weight(filled({n, k}, dtype), dtype);
    const double s = kernels::best_seconds([&] { ops::matmul(x, w); }, 7);
    report(line, dtype == DType::bf16 ? "matmul_bf16" : "matmul_f32",
           fmt::format("{}x{}x{}", m, n, k), 2.0 * double(m) * double(n) * double(k), s, peak);
  }
}

void bench_attention(const Line& line, double peak) {
  for (const auto& [tokens, heads, dim] : {std::tuple<int64_t, int, int>{256, 16, 72},
                                           {1024, 16, 72},
                                           {1024, 24, 64},
                                           {1024, 24, 128}}) {
    const Tensor q = filled({tokens, heads * dim}, DType::bf16);
    const ops::AttentionSpan span{0, tokens, 0, tokens};
    const int h = heads;
    const double s = kernels::best_seconds([&] { ops::attention(q, q, q, h, h, {&span, 1}); }, 5);
    report(line, "attention_bf16", fmt::format("{}x{}x{}", tokens, heads, dim),
           4.0 * double(tokens) * double(tokens) * heads * dim, s, peak);
  }
}

void bench_experts(const Line& line, double peak, double bandwidth) {
  const int64_t hidden = 1024, inner = 1024, count = 16;
  std::vector<ops::ExpertWeights> bank;
  int64_t bytes = 0;
  for (int64_t e = 0; e < count; ++e) {
    const Tensor w = filled({inner, hidden}, DType::bf16);
    bank.push_back({ops::pack_paired_weight(w, w, DType::bf16), ops::pack_weight(w, DType::bf16)});
    bytes += 3 * w.bytes();
  }
  for (int64_t tokens : {16, 64, 512}) {
    const Tensor x = filled({tokens, hidden}, DType::bf16);
    const ops::Routing routing = ops::route(filled({tokens, count}, DType::f32), {.top_k = 4});
    const double s = kernels::best_seconds([&] { ops::experts(x, routing, bank); }, 5);
    const double flops = 6.0 * double(tokens * 4) * double(hidden) * double(inner);
    line(fmt::format(R"({{"bench":"experts_bf16","shape":"{}x{}x{}, top 4 of {}","gflops":{:.1f},)"
                     R"("share_of_peak":{:.3f},"share_of_bandwidth":{:.3f}}})",
                     tokens, hidden, inner, count, flops / s / 1e9, flops / s / peak,
                     double(bytes) / s / bandwidth));
  }
}

void bench_norm(const Line& line, double bandwidth) {
  const int64_t rows = 8192, width = 1152;
  const Tensor x = filled({rows, width}, DType::bf16);
  const Tensor shift = filled({1, width}, DType::f32);
  ops::NormOptions options;
  options.shift = options.scale = shift;
  const double s = kernels::best_seconds([&] { ops::layer_norm(x, options); }, 5);
  const double bytes = 2.0 * double(x.bytes());  // read and written
  line(fmt::format(R"({{"bench":"layer_norm_bf16","shape":"{}x{}","gb_s":{:.2f},)"
                   R"("share_of_bandwidth":{:.3f}}})",
                   rows, width, bytes / s / 1e9, bytes / s / bandwidth));
}

void bench_conv(const Line& line, double peak) {
  for (const auto& [side, channels] : {std::pair<int64_t, int64_t>{64, 512}, {256, 128}}) {
    const Tensor x = filled({1, side, side, channels}, DType::bf16);
    const ops::ConvWeight w =
        ops::pack_conv(filled({channels, channels, 3, 3}, DType::f32), {}, DType::bf16);
    ops::Conv2dOptions options;
    options.pad_top = options.pad_bottom = options.pad_left = options.pad_right = 1;
    const double s = kernels::best_seconds([&] { ops::conv2d(x, w, options); }, 5);
    report(line, "conv3x3_bf16", fmt::format("{}x{}x{}", side, side, channels),
           18.0 * double(side * side) * double(channels) * double(channels), s, peak);
  }
}

}  // namespace

void bench_kernels(int threads, const Line& line) {
  require(threads >= 1, ErrorCode::usage, "{} threads: expected 1 or more", threads);
  base::ThreadPool pool(threads);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  const kernels::Limits limits = kernels::probe_limits();
  line(fmt::format(R"({{"bench":"limits","isa":"{}","threads":{},"bf16_dot_gflops":{:.1f},)"
                   R"("f32_fma_gflops":{:.1f},"bf16_tile_gflops":{:.1f},"read_gb_s":{:.2f}}})",
                   kernels::name_of(kernels::active_isa()), threads, limits.bf16_dot / 1e9,
                   limits.f32_fma / 1e9, limits.bf16_tile / 1e9, limits.read / 1e9));
  bench_matmul(line, DType::bf16, limits.product(true));
  bench_matmul(line, DType::f32, limits.product(false));
  bench_attention(line, limits.product(true));
  bench_experts(line, limits.product(true), limits.read);
  bench_norm(line, limits.read);
  bench_conv(line, limits.product(true));
}

}  // namespace tessera
