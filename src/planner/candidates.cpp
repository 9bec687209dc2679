#include "planner/candidates.h"

#include <algorithm>
#include <iterator>

namespace tessera::planner {
namespace {

using AxisSize = int Plan::*;
constexpr AxisSize kAxes[] = {&Plan::data,    &Plan::cfg,    &Plan::pipefusion,   &Plan::ring,
                              &Plan::ulysses, &Plan::tensor, &Plan::distrifusion, &Plan::shard};
constexpr int kMostAxes = 4, kMostPatches = 32;

int axes_cut(const Plan& plan) {
  return static_cast<int>(std::count_if(std::begin(kAxes), std::end(kAxes),
                                        [&](AxisSize axis) { return plan.*axis > 1; }));
}

// Whether the search may use a partial product of axes.
bool fits(const Plan& plan, const Choice& choice) {
  if (plan.data > choice.samples || plan.cfg > (choice.branches ? 2 : 1)) return false;
  if (plan.pipefusion > choice.blocks) return false;
  if (plan.distrifusion > 1 && !choice.stale) return false;
  // Axes that split weights exclude each other, and stale tokens.
  const int weights = (plan.tensor > 1) + (plan.shard > 1) + (plan.pipefusion > 1);
  if (weights > 1) return false;
  if (plan.distrifusion > 1 && (plan.ring > 1 || plan.ulysses > 1 || weights > 0)) return false;
  return axes_cut(plan) <= kMostAxes;
}

void add_products(Plan plan, size_t axis, int ranks, const Choice& choice,
                  std::vector<Plan>& found) {
  if (!fits(plan, choice)) return;
  if (axis == std::size(kAxes)) {
    if (ranks == 1) found.push_back(plan);
    return;
  }
  for (int n = 1; n <= ranks; ++n) {
    if (ranks % n != 0) continue;
    plan.*kAxes[axis] = n;
    add_products(plan, axis + 1, ranks / n, choice, found);
  }
}

std::vector<Plan> with_patches(const Plan& plan, bool stale) {
  std::vector<Plan> found;
  for (int patches = stale ? plan.pipefusion : 1; patches <= kMostPatches; patches *= 2) {
    found.push_back(plan);
    found.back().patches = patches;
    if (!stale || plan.pipefusion == 1 || patches >= 4 * plan.pipefusion) break;
  }
  if (found.empty()) {
    found.push_back(plan);
    found.back().patches = stale ? plan.pipefusion : 1;
  }
  return found;
}

}  // namespace

std::vector<Plan> candidates(const Choice& choice) {
  std::vector<Plan> products, found;
  add_products({}, 0, choice.ranks, choice, products);
  std::stable_sort(products.begin(), products.end(),
                   [](const Plan& a, const Plan& b) { return axes_cut(a) < axes_cut(b); });
  for (const Plan& product : products) {
    std::vector<Plan> cut = {product};
    if (product.pipefusion > 1) cut = with_patches(product, choice.stale);
    const int holders = product.data * product.cfg * product.ring * product.ulysses;
    for (Plan& plan : cut) {
      found.push_back(plan);
      if (choice.experts == 0 || holders == 1 || product.shard > 1) continue;
      plan.expert = holders;
      while (plan.expert > choice.experts && plan.expert % 2 == 0) plan.expert /= 2;
      found.push_back(plan);
      if (!choice.stale) continue;
      plan.schedule = ExpertSchedule::interweaved;
      found.push_back(plan);
      if (!choice.fused || plan.expert == 1) continue;
      plan.moe = MoeForm::fused;  // sends no ids, and wakes no rank for an exchange
      found.push_back(plan);
    }
  }
  return found;
}

}  // namespace tessera::planner
