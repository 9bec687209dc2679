#include "study/bench.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "kernels/bf16_path.h"
#include "kernels/isa.h"
#include "kernels/probe.h"
#include "ops/matmul.h"
#include "runtime/device.h"
#include "study/bench_products.h"
#include "study/bench_rows.h"
#include "tensor/device_pool.h"
#include "tensor/recording.h"
#include "tensor/scope.h"
#include "tessera/study.h"

namespace tessera::study {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

constexpr int kQueued = 20;          // calls between two waits for a device
constexpr double kFillsAGpu = 8;     // a GPU's tokens for a CPU's token
constexpr int64_t kPattern = 65521;  // a prime

// Large copies: memory is measured, not a cache.
double copy_speed(const Bench& b) {
  const Tensor from = Tensor::zeros({int64_t{1} << 29}, DType::u8, b.device);
  const Tensor to = Tensor::empty(from.shape(), DType::u8, b.device);
  return 2.0 * double(from.bytes()) / b.seconds([&] { tensor::copy_into(to, from); }, 3);
}

// The speed of the library's largest product and of a copy within the memory.
Bench measured_gpu(const std::function<void(const std::string&)>& line,
                   const runtime::DeviceChoice& place) {
  Bench b{line, place.device, 1, 1, 1, kFillsAGpu};
  const int64_t side = 8192;
  const auto product = [&](DType dtype) {
    const Tensor x = b.filled({side, side}, dtype);
    const ops::Weight w = ops::pack_weight(x, dtype);
    return 2.0 * double(side) * double(side) * double(side) /
           b.seconds([&] { ops::matmul(x, w); }, 3);
  };
  b.peak = product(DType::bf16);
  b.peak_f32 = product(DType::f32);
  b.bandwidth = copy_speed(b);
  line(fmt::format(R"({{"bench":"limits","device":"{}","bf16_product_gflops":{:.1f},)"
                   R"("f32_product_gflops":{:.1f},"copy_gb_s":{:.2f}}})",
                   runtime::device_name(place), b.peak / 1e9, b.peak_f32 / 1e9, b.bandwidth / 1e9));
  return b;
}

Bench measured_cpu(const std::function<void(const std::string&)>& line, int threads) {
  const kernels::Limits limits = kernels::probe_limits();
  line(fmt::format(
      R"({{"bench":"limits","isa":"{}","unit":"{}","threads":{},"bf16_dot_gflops":{:.1f},)"
      R"("f32_fma_gflops":{:.1f},"bf16_tile_gflops":{:.1f},"read_gb_s":{:.2f}}})",
      kernels::name_of(kernels::active_isa()), kernels::name_of(kernels::active_bf16_path()),
      threads, limits.bf16_dot / 1e9, limits.f32_fma / 1e9, limits.bf16_tile / 1e9,
      limits.read / 1e9));
  return {line, Device::cpu, limits.product(true), limits.product(false), limits.read, 1};
}

void report(const Bench& b, const std::string& kernel, const std::string& shape, double flops,
            double seconds, double peak) {
  b.line(fmt::format(
      R"({{"bench":"{}","shape":"{}","ms":{:.4f},"gflops":{:.1f},"share_of_peak":{:.3f}}})", kernel,
      shape, seconds * 1e3, flops / seconds / 1e9, flops / seconds / peak));
}

}  // namespace

int64_t Bench::many(int64_t tokens) const {
  return std::max<int64_t>(16, static_cast<int64_t>(double(tokens) * size));
}

double Bench::seconds(const std::function<void()>& f, int times) const {
  if (!is_gpu(device)) return kernels::best_seconds(f, times);
  const auto calls = [&] {
    for (int i = 0; i < kQueued; ++i) f();
  };
  f();  // fills caches
  const auto recording = tensor::Recording::attempt(calls);
  const auto queued = [&] {
    recording ? recording->replay() : calls();
    tensor::device_pool()->runtime().synchronise(tensor::current_scope().stream);
  };
  queued();
  return kernels::best_seconds(queued, times) / kQueued;
}

Tensor Bench::filled(const tensor::Shape& shape, DType dtype) const {
  const Tensor pattern = Tensor::empty({kPattern}, dtype), x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < kPattern; ++i) {
    const float value = static_cast<float>(i * 7919 % 2039 - 1019) / 4096.0f;
    if (dtype == DType::bf16)
      pattern.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(value);
    else
      pattern.data<float>()[i] = value;
  }
  for (int64_t at = 0; at < x.bytes(); at += pattern.bytes())
    std::memcpy(x.data<std::byte>() + at, pattern.raw(),
                static_cast<size_t>(std::min(pattern.bytes(), x.bytes() - at)));
  return x.to(device);
}

void Bench::products(const std::string& kernel, const std::string& shape, double flops,
                     double seconds) const {
  report(*this, kernel, shape, flops, seconds, peak);
}

void Bench::products_f32(const std::string& kernel, const std::string& shape, double flops,
                         double seconds) const {
  report(*this, kernel, shape, flops, seconds, peak_f32);
}

void Bench::moves(const std::string& kernel, const std::string& shape, double bytes,
                  double seconds) const {
  line(fmt::format(
      R"({{"bench":"{}","shape":"{}","ms":{:.4f},"gb_s":{:.2f},"share_of_bandwidth":{:.3f}}})",
      kernel, shape, seconds * 1e3, bytes / seconds / 1e9, bytes / seconds / bandwidth));
}

}  // namespace tessera::study

namespace tessera {

void bench_kernels(int threads, const std::function<void(const std::string& json)>& line,
                   const DeviceOption& device) {
  require(threads >= 1, ErrorCode::usage, "{} threads: expected 1 or more", threads);
  const runtime::DeviceChoice place = runtime::choose_device(device);
  runtime::start_device(place);
  base::ThreadPool pool(threads);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  const study::Bench bench = tensor::is_gpu(place.device) ? study::measured_gpu(line, place)
                                                          : study::measured_cpu(line, threads);
  study::bench_products(bench);
  study::bench_rows(bench);
}

}  // namespace tessera
