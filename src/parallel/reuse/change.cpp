#include "parallel/reuse/change.h"

#include <cmath>
#include <limits>
#include <mutex>

#include "base/fail.h"
#include "comm/collectives.h"
#include "tensor/dtype.h"
#include "tensor/scope.h"

namespace tessera::parallel {
namespace {

using tensor::Tensor;

constexpr double kPart = 17179869184.0;  // 2^34
constexpr double kMost = kPart;          // sums of more rows than any run has fit in 62 bits
constexpr int64_t kLanes = 16;
constexpr int64_t kGrain = 16;  // rows of a task

struct RowSums {
  double moved = 0, base = 0;
};

// In lanes of a fixed order, whatever the number of threads.
template <class T>
RowSums sums_of(const T* now, const T* then, int64_t n) {
  float difference[kLanes] = {}, base[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float before = tensor::to_float(then[i + lane]);
      difference[lane] += std::abs(tensor::to_float(now[i + lane]) - before);
      base[lane] += std::abs(before);
    }
  RowSums sums;
  for (; i < n; ++i) {
    const float before = tensor::to_float(then[i]);
    sums.moved += std::abs(tensor::to_float(now[i]) - before);
    sums.base += std::abs(before);
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums.moved += difference[lane];
    sums.base += base[lane];
  }
  return sums;
}

void put(double value, std::array<int64_t, 2>& into) {
  const double whole = std::floor(value);
  into[0] += static_cast<int64_t>(whole);
  into[1] += static_cast<int64_t>((value - whole) * kPart);
}

double number(const std::array<int64_t, 2>& sum) {
  return static_cast<double>(sum[0]) + static_cast<double>(sum[1]) / kPart;
}

}  // namespace

void Change::add(const Tensor& now, const Tensor& then) {
  if (!now.defined() || !then.defined() || now.is_meta()) return;
  require(now.shape() == then.shape() && now.dtype() == then.dtype(), ErrorCode::usage,
          "a change from {} {} to {} {}", tensor::name_of(then.dtype()), then.shape().str(),
          tensor::name_of(now.dtype()), now.shape().str());
  const Tensor a = now.contiguous().to(tensor::Device::cpu),
               b = then.contiguous().to(tensor::Device::cpu);
  const int64_t n = a.size(1);
  std::mutex mutex;
  tensor::with_float_type(a.dtype(), [&]<class T>(T) {
    tensor::parallel_for(a.size(0), kGrain, [&](int64_t begin, int64_t end) {
      std::array<int64_t, 2> difference{}, base{};
      bool finite = true;
      for (int64_t r = begin; r < end && finite; ++r) {
        const RowSums sums = sums_of(a.row<T>(r), b.row<T>(r), n);
        finite = sums.moved <= kMost && sums.base <= kMost;
        if (!finite) continue;
        put(sums.moved, difference);
        put(sums.base, base);
      }
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < 2; ++i) {
        moved_[i] += difference[i];
        base_[i] += base[i];
      }
      finite_ = finite_ && finite;
    });
  });
}

void Change::join(comm::Communicator* world, bool counted) {
  if (!world || world->size() == 1) return;
  std::array<int64_t, 5> sums{};
  if (counted) sums = {moved_[0], moved_[1], base_[0], base_[1], finite_ ? 0 : 1};
  comm::all_reduce(*world, sums, {"cache", -1});
  moved_ = {sums[0], sums[1]};
  base_ = {sums[2], sums[3]};
  finite_ = sums[4] == 0;
}

double Change::relative() const {
  const double none = std::numeric_limits<double>::infinity();
  if (!finite_) return none;
  const double difference = number(moved_), base = number(base_);
  return difference == 0 ? 0 : base == 0 ? none : difference / base;
}

}  // namespace tessera::parallel
