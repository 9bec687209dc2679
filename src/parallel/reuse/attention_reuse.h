#pragma once

#include <map>

#include "parallel/reuse/step_reuse.h"
#include "parallel/reuse/taylor.h"
#include "tessera/step_cache.h"

namespace tessera::parallel {

/// The steps that TaylorSeer computes (as in diffusers).
bool taylor_computes(const StepCache& cache, int step);

/// TaylorSeer (Liu et al. 2025): between computed steps the results of all attentions are
/// extrapolated; norms and MLPs run. A projection after an attention is linear, so the result
/// equals an extrapolation of projections.
class AttentionReuse final : public StepReuse {
 public:
  AttentionReuse(const StepCache& cache, Run run)
      : StepReuse(std::move(run)), cache_(cache), seam_(*this) {}
  nn::Attention& attention(nn::Attention& own) override;
  void blocks(const Pass& pass) override;

 private:
  class Seam final : public nn::Attention {
   public:
    explicit Seam(AttentionReuse& reuse) : reuse_(reuse) {}
    tensor::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;
    bool needs_heads(int site) const override;

   private:
    AttentionReuse& reuse_;
  };
  bool computes() const { return run_.meta || taylor_computes(cache_, step()); }

  const StepCache cache_;
  Seam seam_;
  nn::Attention* own_ = nullptr;
  std::map<int, Taylor> results_;  // by site
};

}  // namespace tessera::parallel
