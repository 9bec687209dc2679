// Fits the time of a MoE layer's experts to a N K + b U (N tokens, K experts each, U distinct
// experts) at the size of LLaDA-MoE (2048 x 1024, 64 experts, top 8), bf16 and int8. All points are
// measured in turn, again and again, keeping the best time of each; then follows the fit.
//   latency_law_bench [threads] [rounds]
#include <cmath>
#include <numeric>
#include <set>

#include "bench.h"
#include "evaluation/fit.h"
#include "ops/experts.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int64_t kHidden = 2048, kInner = 1024;
constexpr int kExperts = 64, kSlots = 8;

std::vector<ops::Expert> bank_of(DType dtype) {
  const float scale = 1 / std::sqrt(float(kHidden));
  const Tensor up = bench::random_tensor({kInner, kHidden}, DType::bf16, 1, scale);
  const Tensor down = bench::random_tensor({kHidden, kInner}, DType::bf16, 2, scale);
  std::vector<ops::Expert> bank;
  for (int e = 0; e < kExperts; ++e)
    bank.push_back({ops::pack_paired_weight(up, up, dtype), ops::pack_weight(down, dtype)});
  return bank;
}

// Tokens with 8 of the first `distinct` experts each; every such expert is used at least once.
ops::Routing routing_of(int64_t tokens, int64_t distinct) {
  std::mt19937 random(1);
  ops::Routing routing{Tensor::empty({tokens, kSlots}, DType::i32),
                       Tensor::empty({tokens, kSlots}, DType::f32)};
  std::vector<int32_t> order(static_cast<size_t>(distinct));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    if (t * kSlots >= distinct) std::shuffle(order.begin(), order.end(), random);
    for (int64_t j = 0; j < kSlots; ++j) {
      const int64_t at = t * kSlots < distinct ? (t * kSlots + j) % distinct : j;
      routing.ids.row<int32_t>(t)[j] = order[static_cast<size_t>(at)];
      routing.weights.row<float>(t)[j] = 1.0f / kSlots;
    }
  }
  return routing;
}

struct Point {
  int64_t tokens = 0, distinct = 0;
  ops::Routing routing;
  double seconds = 1e30;
};

void print(DType dtype, const std::vector<Point>& points) {
  std::vector<double> rows, experts, seconds;
  for (const Point& p : points) {
    rows.push_back(double(p.tokens * kSlots));
    experts.push_back(double(p.distinct));
    seconds.push_back(p.seconds);
    fmt::print("{{\"dtype\":\"{}\",\"tokens\":{},\"distinct\":{},\"ms\":{:.3f}}}\n",
               tensor::name_of(dtype), p.tokens, p.distinct, 1e3 * p.seconds);
  }
  const evaluation::Fit fit = evaluation::fit_two(rows, experts, seconds);
  fmt::print("{{\"dtype\":\"{}\",\"us_per_row\":{:.2f},\"us_per_expert\":{:.2f},\"r2\":{:.5f}}}\n",
             tensor::name_of(dtype), 1e6 * fit.a, 1e6 * fit.b, fit.r2);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  const DType dtypes[] = {DType::bf16, DType::i8};
  const std::vector<ops::Expert> banks[] = {bank_of(DType::bf16), bank_of(DType::i8)};
  std::vector<Point> points[2];
  for (auto& group : points)
    for (const int64_t tokens : {16, 32, 64})
      for (const int64_t distinct : {8, 12, 16, 24, 32, 40, 48, 56, 64})
        group.push_back({tokens, distinct, routing_of(tokens, distinct)});
  for (int r = 0; r < rounds; ++r)
    for (size_t i = 0; i < points[0].size(); ++i)
      for (const size_t d : {0, 1}) {
        Point& p = points[d][i];
        const Tensor x = bench::random_tensor({p.tokens, kHidden}, DType::bf16, 5);
        p.seconds = std::min(
            p.seconds, kernels::best_seconds([&] { ops::experts(x, p.routing, banks[d]); }, 1));
      }
  for (const size_t d : {0, 1}) print(dtypes[d], points[d]);
}
