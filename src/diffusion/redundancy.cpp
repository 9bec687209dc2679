#include "diffusion/redundancy.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/experts.h"

namespace tessera::diffusion {

using tensor::DType;
using tensor::Tensor;

namespace {

/// |a|^2, |b|^2, a.b and |a - b|^2 of two rows.
struct Products {
  double aa = 0, bb = 0, ab = 0, difference = 0;
};
Products products(const float* a, const float* b, int64_t n) {
  Products p;
  for (int64_t i = 0; i < n; ++i) {
    p.aa += double(a[i]) * a[i];
    p.bb += double(b[i]) * b[i];
    p.ab += double(a[i]) * b[i];
    p.difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  }
  return p;
}

}  // namespace

void RedundancyProbe::compare(const nn::MoeCall& call, const Before& old, const Before& now) {
  const int64_t tokens = now.routing.ids.size(0), k = now.routing.ids.size(1);
  const int64_t hidden = now.rows.size(1);
  int64_t same = 0;
  double cosines = 0;
  auto& bins = bins_[call.site];
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t* id = now.routing.ids.row<int32_t>(t);
    const int32_t* was = old.routing.ids.row<int32_t>(t);
    const float* weight = now.routing.weights.row<float>(t);
    double total = 0;
    for (int64_t j = 0; j < k; ++j) total += weight[j];
    int64_t matches = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t slot = std::find(was, was + k, id[j]) - was;
      if (id[j] < 0 || slot == k) continue;
      ++matches;
      const Products p =
          products(now.rows.row<float>(t * k + j), old.rows.row<float>(t * k + slot), hidden);
      if (p.aa <= 0 || total <= 0) continue;
      const int at = std::clamp(static_cast<int>(weight[j] / total * kBins), 0, kBins - 1);
      Bin& bin = bins[static_cast<size_t>(at)];
      ++bin.rows;
      bin.error += std::sqrt(p.difference / p.aa);
    }
    same += matches == k;
    const Products p = products(now.sum.row<float>(t), old.sum.row<float>(t), hidden);
    cosines += p.aa > 0 && p.bb > 0 ? p.ab / std::sqrt(p.aa * p.bb) : 1;
  }
  const auto n = static_cast<double>(std::max<int64_t>(tokens, 1));
  steps_.push_back({call.site, call.step.index, double(same) / n, cosines / n});
}

void RedundancyProbe::see(const nn::MoeWork& work) {
  const int site = work.call.site;
  if (work.call.step.index == 0) before_.erase(site);  // another run
  Before now{work.routing, ops::cast(work.rows, DType::f32),
             ops::cast(ops::combine_rows(work.rows, work.routing.weights), DType::f32)};
  for (Tensor* x : {&now.routing.ids, &now.routing.weights, &now.rows, &now.sum})
    *x = x->to(tensor::Device::cpu);
  if (const auto old = before_.find(site); old != before_.end())
    compare(work.call, old->second, now);
  before_[site] = std::move(now);
}

std::vector<Report::StaleError> RedundancyProbe::stale_errors() const {
  std::vector<Report::StaleError> errors;
  for (const auto& [layer, bins] : bins_)
    for (int b = 0; b < kBins; ++b) {
      const Bin& bin = bins[static_cast<size_t>(b)];
      if (bin.rows > 0)
        errors.push_back({layer, double(b) / kBins, double(b + 1) / kBins, bin.rows,
                          bin.error / double(bin.rows)});
    }
  return errors;
}

}  // namespace tessera::diffusion
