#include <algorithm>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "engine/device.h"
#include "kernels/isa.h"
#include "kernels/probe.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/experts.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"
#include "tessera/engine.h"

namespace tessera {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;
using Line = std::function<void(const std::string&)>;

constexpr int kQueued = 20;  // calls between two waits for a device

/// Where kernels are measured, and what they are measured by.
struct Bench {
  const Line& line;
  Device device;
  double peak, peak_f32, bandwidth;  // FLOP/s of bf16 and f32 products, bytes/s

  // Tokens that fill a machine of this kind.
  int64_t many(int64_t tokens) const { return device == Device::cuda ? 8 * tokens : tokens; }
  Tensor filled(const tensor::Shape& shape, DType dtype) const;
  double seconds(const std::function<void()>& f, int times) const;
};

// Of one call. Calls for a device are queued, so that the time to start one hides behind others.
double Bench::seconds(const std::function<void()>& f, int times) const {
  if (device != Device::cuda) return kernels::best_seconds(f, times);
  const auto queued = [&] {
    for (int i = 0; i < kQueued; ++i) f();
    tensor::device_pool()->runtime().synchronise(tensor::current_scope().stream);
  };
  return kernels::best_seconds(queued, times) / kQueued;
}

// Values that neither cancel nor overflow; their pattern has a prime period.
Tensor Bench::filled(const tensor::Shape& shape, DType dtype) const {
  Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const float value = static_cast<float>(i * 7919 % 2039 - 1019) / 4096.0f;
    if (dtype == DType::bf16)
      x.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(value);
    else
      x.data<float>()[i] = value;
  }
  return x.to(device);
}

void report(const Line& line, const char* kernel, const std::string& shape, double flops,
            double seconds, double peak) {
  line(fmt::format(R"({{"bench":"{}","shape":"{}","gflops":{:.1f},"share_of_peak":{:.3f}}})",
                   kernel, shape, flops / seconds / 1e9, flops / seconds / peak));
}

void bench_matmul(const Bench& b, DType dtype) {
  const double peak = dtype == DType::bf16 ? b.peak : b.peak_f32;
  for (const auto& [rows, n, k] : {std::tuple<int64_t, int64_t, int64_t>{256, 1152, 1152},
                                   {512, 3456, 1152},
                                   {1024, 4608, 1152},
                                   {2048, 3072, 768}}) {
    const int64_t m = b.many(rows);
    const Tensor x = b.filled({m, k}, dtype);
    const ops::Weight w = ops::pack_weight(b.filled({n, k}, dtype), dtype);
    const double s = b.seconds([&] { ops::matmul(x, w); }, 7);
    report(b.line, dtype == DType::bf16 ? "matmul_bf16" : "matmul_f32",
           fmt::format("{}x{}x{}", m, n, k), 2.0 * double(m) * double(n) * double(k), s, peak);
  }
}

void bench_attention(const Bench& b) {
  for (const auto& [each, heads, dim] : {std::tuple<int64_t, int, int>{256, 16, 72},
                                         {1024, 16, 72},
                                         {1024, 24, 64},
                                         {1024, 24, 128}}) {
    const int64_t tokens = b.many(each);
    const Tensor q = b.filled({tokens, heads * dim}, DType::bf16);
    const ops::AttentionSpan span{0, tokens, 0, tokens};
    const int h = heads;
    const double s = b.seconds([&] { ops::attention(q, q, q, h, h, {&span, 1}); }, 5);
    report(b.line, "attention_bf16", fmt::format("{}x{}x{}", tokens, heads, dim),
           4.0 * double(tokens) * double(tokens) * heads * dim, s, b.peak);
  }
}

void bench_experts(const Bench& b) {
  const int64_t hidden = 1024, inner = 1024, count = 16;
  std::vector<ops::ExpertWeights> bank;
  int64_t bytes = 0;
  for (int64_t e = 0; e < count; ++e) {
    const Tensor w = b.filled({inner, hidden}, DType::bf16);
    bank.push_back({ops::pack_paired_weight(w, w, DType::bf16), ops::pack_weight(w, DType::bf16)});
    bytes += 3 * w.bytes();
  }
  for (int64_t each : {16, 64, 512}) {
    const int64_t tokens = b.many(each);
    const Tensor x = b.filled({tokens, hidden}, DType::bf16);
    const ops::Routing routing = ops::route(b.filled({tokens, count}, DType::f32), {.top_k = 4});
    const double s = b.seconds([&] { ops::experts(x, routing, bank); }, 5);
    const double flops = 6.0 * double(tokens * 4) * double(hidden) * double(inner);
    b.line(
        fmt::format(R"({{"bench":"experts_bf16","shape":"{}x{}x{}, top 4 of {}","gflops":{:.1f},)"
                    R"("share_of_peak":{:.3f},"share_of_bandwidth":{:.3f}}})",
                    tokens, hidden, inner, count, flops / s / 1e9, flops / s / b.peak,
                    double(bytes) / s / b.bandwidth));
  }
}

void bench_norm(const Bench& b) {
  const int64_t rows = 8192, width = 1152;
  const Tensor x = b.filled({rows, width}, DType::bf16);
  const Tensor shift = b.filled({1, width}, DType::f32);
  ops::NormOptions options;
  options.shift = options.scale = shift;
  const double s = b.seconds([&] { ops::layer_norm(x, options); }, 5);
  const double bytes = 2.0 * double(x.bytes());  // read and written
  b.line(fmt::format(R"({{"bench":"layer_norm_bf16","shape":"{}x{}","gb_s":{:.2f},)"
                     R"("share_of_bandwidth":{:.3f}}})",
                     rows, width, bytes / s / 1e9, bytes / s / b.bandwidth));
}

void bench_conv(const Bench& b) {
  for (const auto& [side, channels] : {std::pair<int64_t, int64_t>{64, 512}, {256, 128}}) {
    const Tensor x = b.filled({1, side, side, channels}, DType::bf16);
    const ops::ConvWeight w =
        ops::pack_conv(b.filled({channels, channels, 3, 3}, DType::f32), {}, DType::bf16);
    ops::Conv2dOptions options;
    options.pad_top = options.pad_bottom = options.pad_left = options.pad_right = 1;
    const double s = b.seconds([&] { ops::conv2d(x, w, options); }, 5);
    report(b.line, "conv3x3_bf16", fmt::format("{}x{}x{}", side, side, channels),
           18.0 * double(side * side) * double(channels) * double(channels), s, b.peak);
  }
}

// What the library's largest product and a copy within the memory reach.
Bench measured_gpu(const Line& line, const engine::DeviceChoice& place) {
  Bench b{line, Device::cuda, 1, 1, 1};
  const int64_t side = 8192;
  const auto product = [&](DType dtype) {
    const Tensor x = b.filled({side, side}, dtype);
    const ops::Weight w = ops::pack_weight(x, dtype);
    return 2.0 * double(side) * double(side) * double(side) /
           b.seconds([&] { ops::matmul(x, w); }, 3);
  };
  b.peak = product(DType::bf16);
  b.peak_f32 = product(DType::f32);
  const Tensor from = Tensor::zeros({int64_t{1} << 29}, DType::u8, Device::cuda);
  const Tensor to = Tensor::empty(from.shape(), DType::u8, Device::cuda);
  b.bandwidth = 2.0 * double(from.bytes()) / b.seconds([&] { tensor::copy_into(to, from); }, 3);
  line(fmt::format(R"({{"bench":"limits","device":"{}","bf16_product_gflops":{:.1f},)"
                   R"("f32_product_gflops":{:.1f},"copy_gb_s":{:.2f}}})",
                   engine::device_name(place), b.peak / 1e9, b.peak_f32 / 1e9, b.bandwidth / 1e9));
  return b;
}

Bench measured_cpu(const Line& line, int threads) {
  const kernels::Limits limits = kernels::probe_limits();
  line(fmt::format(R"({{"bench":"limits","isa":"{}","threads":{},"bf16_dot_gflops":{:.1f},)"
                   R"("f32_fma_gflops":{:.1f},"bf16_tile_gflops":{:.1f},"read_gb_s":{:.2f}}})",
                   kernels::name_of(kernels::active_isa()), threads, limits.bf16_dot / 1e9,
                   limits.f32_fma / 1e9, limits.bf16_tile / 1e9, limits.read / 1e9));
  return {line, Device::cpu, limits.product(true), limits.product(false), limits.read};
}

}  // namespace

void bench_kernels(int threads, const Line& line, const std::string& device) {
  require(threads >= 1, ErrorCode::usage, "{} threads: expected 1 or more", threads);
  const engine::DeviceChoice place = engine::parse_device(device);
  engine::start_device(place);
  base::ThreadPool pool(threads);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  const Bench bench =
      place.device == Device::cuda ? measured_gpu(line, place) : measured_cpu(line, threads);
  bench_matmul(bench, DType::bf16);
  bench_matmul(bench, DType::f32);
  bench_attention(bench);
  bench_experts(bench);
  bench_norm(bench);
  bench_conv(bench);
}

}  // namespace tessera
