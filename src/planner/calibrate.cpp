#include <algorithm>
#include <cmath>
#include <thread>

#include "base/fail.h"
#include "base/machine_memory.h"
#include "base/stop.h"
#include "kernels/probe.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "planner/cluster_description.h"
#include "tensor/scope.h"
#include "tessera/prediction.h"

namespace tessera {
namespace planner {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kWidth = 512, kHeads = 8;
constexpr int64_t kRows[] = {8, 64, 512, 2048};
constexpr double kThreadHandover = 20e-6;  // time to wake a sleeping thread

/// A measurement: a size in FLOPs or bytes, and seconds.
struct Point {
  double size = 0, seconds = 0;
};

Tensor filled(const tensor::Shape& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = static_cast<float>(i * 37 % 251) / 251 - 0.5f;
  return ops::cast(x, dtype);
}

std::vector<Point> products() {
  const ops::Weight w = ops::pack_weight(filled({kWidth, kWidth}, DType::bf16), DType::bf16);
  std::vector<Point> points;
  for (const int64_t rows : kRows) {
    base::check_stop();
    const Tensor x = filled({rows, kWidth}, DType::bf16);
    points.push_back({2.0 * double(rows) * kWidth * kWidth,
                      kernels::best_seconds([&] { ops::matmul(x, w); }, 3)});
  }
  return points;
}

std::vector<Point> attentions() {
  std::vector<Point> points;
  for (const int64_t rows : kRows) {
    base::check_stop();
    const Tensor x = filled({rows, kWidth}, DType::bf16);
    const ops::AttentionSpan span{0, rows, 0, rows};
    points.push_back({4.0 * double(rows) * double(rows) * kWidth,
                      kernels::best_seconds(
                          [&] {
                            ops::attention(x, x, x, kHeads, kHeads, {&span, 1});
                          },
                          3)});
  }
  return points;
}

std::vector<Point> convolutions() {
  constexpr int64_t kChannels = 64;
  const auto filter = ops::pack_conv(filled({kChannels, kChannels, 3, 3}, DType::f32),
                                     filled({kChannels}, DType::f32), DType::bf16);
  std::vector<Point> points;
  for (const int64_t side : {4, 16, 64}) {
    base::check_stop();
    const Tensor x = filled({1, side, side, kChannels}, DType::bf16);
    points.push_back({2.0 * double(side * side) * kChannels * kChannels * 9,
                      kernels::best_seconds(
                          [&] {
                            ops::conv2d(
                                x, filter,
                                {.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1});
                          },
                          3)});
  }
  return points;
}

std::vector<Point> additions() {
  std::vector<Point> points;
  for (const int64_t rows : {8, 512, 8192}) {
    base::check_stop();
    const Tensor x = filled({rows, kWidth}, DType::bf16);
    points.push_back({double(3 * x.bytes()), kernels::best_seconds([&] { ops::add(x, x); }, 3)});
  }
  return points;
}

double best_rate(const std::vector<Point>& points) {
  double most = 0;
  for (const Point& p : points) most = std::max(most, p.size / std::max(p.seconds, 1e-9));
  return most;
}

Curve curve_of(const std::vector<Point>& points, double peak) {
  Curve curve;
  for (const Point& p : points)
    curve.points.emplace_back(p.size,
                              std::clamp(p.size / std::max(p.seconds, 1e-9) / peak, 1e-6, 10.0));
  return curve;
}

}  // namespace
}  // namespace planner

std::string calibrate(int ranks, int threads, const std::stop_token& stop) {
  using namespace planner;
  require(ranks >= 1 && ranks <= 512, ErrorCode::usage, "`ranks` {}: expected 1 to 512", ranks);
  const base::BindStop bind(stop);
  const int cores =
      threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // A rank's share of the cores; a shared core is slower in proportion.
  const int own = std::max(1, cores / ranks);
  const double share = std::min(1.0, double(cores) / (own * ranks));
  base::ThreadPool pool(own);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bound(scope);
  const auto matmul = products();
  const auto attention = attentions(), convolution = convolutions(), memory = additions();
  const double peak = best_rate(matmul), bandwidth = best_rate(memory);
  Cluster here;
  here.name = "this machine";
  here.device.name = "a rank's cores";
  here.device.flops = {{"bf16", peak * share}, {"f32", peak * share}};
  here.device.memory_bandwidth = bandwidth * share;
  here.device.memory_bytes = double(base::usable_memory()) / ranks;
  here.device.curves = {{"matmul", curve_of(matmul, peak)},
                        {"attention", curve_of(attention, peak)},
                        {"convolution", curve_of(convolution, peak)},
                        {"memory", curve_of(memory, bandwidth)}};
  here.devices = ranks;
  here.link = {bandwidth * share, kThreadHandover};
  return to_json(here).dump(1);
}

}  // namespace tessera
