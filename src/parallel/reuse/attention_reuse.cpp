#include "parallel/reuse/attention_reuse.h"

namespace tessera::parallel {

using tensor::Tensor;

bool taylor_computes(const StepCache& cache, int step) {
  return step < cache.before ||
         (step > cache.before && (step - cache.before - 1) % cache.interval == 0) ||
         cache.interval == 1 || (cache.after >= 0 && step >= cache.after);
}

bool AttentionReuse::Seam::needs_heads(int site) const {
  return reuse_.computes() && reuse_.own_->needs_heads(site);
}

Tensor AttentionReuse::Seam::attend(int site, const nn::TokenView& view, const nn::Qkv& heads) {
  if (!reuse_.computes()) return reuse_.results_.at(site).at(reuse_.step());
  const Tensor output = reuse_.own_->attend(site, view, heads);
  reuse_.results_.try_emplace(site, reuse_.cache_.order)
      .first->second.update(output, reuse_.step());
  return output;
}

nn::Attention& AttentionReuse::attention(nn::Attention& own) {
  own_ = &own;
  return seam_;
}

void AttentionReuse::blocks(const Pass& pass) {
  if (computes()) return run_blocks(pass, 0, end());
  pass.ahead(end());
  for (int b = 0; b < end(); ++b) {
    const double before = flops_now();
    pass.block(b);
    log_.flops_saved += costs_[b] - (flops_now() - before);
    log_.blocks_reused += b >= first() ? 1 : 0;
  }
}

}  // namespace tessera::parallel
