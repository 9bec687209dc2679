#include "parallel/reuse/step_reuse.h"

#include <limits>

#include "tensor/scope.h"

namespace tessera::parallel {

void StepReuse::begin_step(int) {
  log_.computed.emplace_back();
  log_.changes.push_back(std::numeric_limits<double>::quiet_NaN());
}

double StepReuse::flops_now() {
  const auto& meter = tensor::current_scope().meter;
  return meter ? meter->total().flops : 0;
}

void StepReuse::run_blocks(const Pass& pass, int begin, int end) {
  pass.ahead(end);
  for (int b = begin; b < end; ++b) {
    const double before = flops_now();
    pass.block(b);
    costs_[b] = flops_now() - before;
    if (b < first()) continue;
    log_.computed.back().push_back(b - first());
    ++log_.blocks_computed;
  }
}

void StepReuse::skip_blocks(int begin, int end) {
  for (int b = begin; b < end; ++b) {
    log_.flops_saved += costs_[b];
    log_.blocks_reused += b >= first() ? 1 : 0;
  }
}

void StepReuse::skip_pass(double flops) {
  log_.flops_saved += flops;
  log_.blocks_reused += end() - first();
}

double StepReuse::change(const nn::Joint& now, const nn::Joint& then) {
  Change change;
  change.add(now.body, then.body);
  change.add(now.prefix, then.prefix);
  change.join(run_.world, run_.counted);
  if (run_.meta) return std::numeric_limits<double>::infinity();
  return log_.changes.back() = change.relative();
}

}  // namespace tessera::parallel
