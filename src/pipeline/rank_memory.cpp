#include "pipeline/rank_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "load/meta_weights.h"
#include "parallel/denoise.h"
#include "parallel/experts/exchange.h"
#include "parallel/experts/kept_rows.h"
#include "pipeline/estimate.h"

namespace tessera::pipeline {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::MemoryClass;
using tensor::Tensor;

/// Runs the model of a plan's ranks on meta; equal ranks once.
class Ranks {
 public:
  Ranks(const models::PipelineSpec& recipe, const RunOptions& options,
        const nn::TokenLayout& layout, const parallel::Workload& workload)
      : recipe_(recipe),
        plan_(options.plan),
        dtype_(dtype_of(options)),
        expert_dtype_(expert_dtype_of(options)),
        layout_(layout),
        workload_(with_text(recipe, workload)),
        partition_(plan_, workload_),
        model_(make({})) {
    parallel::require_runnable(plan_, model_->geometry(), workload_);
    const auto& sites = model_->geometry().experts;
    if (!sites.empty()) owners_ = parallel::expert_owners(plan_, sites.front().experts);
  }

  Inspection::Rank operator()(int rank) {
    const int place = parallel::expert_place(plan_, rank);
    const nn::Geometry& geometry = model_->geometry();
    Inspection::Rank need;
    need.experts = static_cast<int>(std::count(owners_.begin(), owners_.end(), place));
    need.tokens = nn::token_count(partition_.view(rank).body);
    need.weights = weights(place, need.experts);
    need.activations = activations(rank, need.tokens);
    if (!partition_.whole_pictures()) need.kv = keys_and_values(rank);
    if (geometry.experts.empty() || !parallel::shares_experts(plan_)) return need;
    const parallel::RowSizes rows{static_cast<int>(geometry.experts.size()),
                                  geometry.experts.front().top_k, need.tokens,
                                  geometry.hidden * tensor::size_of(dtype_)};
    need.exchange = parallel::exchange_bytes(rows, plan_.expert);
    need.kept_rows = parallel::kept_row_bytes(plan_, workload_.steps, rows);
    return need;
  }

 private:
  static parallel::Workload with_text(const models::PipelineSpec& recipe,
                                      parallel::Workload workload) {
    workload.prefix = recipe.prefix(recipe.example(1));
    return workload;
  }
  std::unique_ptr<nn::Denoiser> make(std::vector<bool> experts, int shards = 1) const {
    nn::Portion part{.blocks = {0, recipe_.blocks}, .experts = std::move(experts)};
    part.shard = {shards - 1, shards};
    part.expert_dtype = expert_dtype_;
    return recipe_.make(load::MetaWeights(), part, dtype_);
  }
  int64_t weights(int place, int experts) {
    const auto known = weights_.find(experts);
    if (known != weights_.end()) return known->second;
    std::vector<bool> mine;
    for (int owner : owners_) mine.push_back(owner == place);
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    const auto part = make(plan_.expert > 1 ? mine : std::vector<bool>{}, plan_.tensor);
    return weights_[experts] = scope.memory->current(MemoryClass::weights);
  }
  // Its experts get as many rows as it sends: a routing that loads all of them alike.
  int64_t activations(int rank, int64_t tokens) {
    const int rows = partition_.shape(rank).rows;
    const std::pair<int, int64_t> size{rows, tokens};
    const auto known = activations_.find(size);
    if (known != activations_.end()) return known->second;
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    parallel::Setup setup({}, model_->geometry(), workload_);
    setup.partition = partition_;
    setup.rank = rank;
    parallel::forward(
        *model_, recipe_.example(rows), Tensor::empty({rows}, DType::f32, Device::meta),
        Tensor::empty({tokens, layout_.token_channels()}, DType::f32, Device::meta), setup, {});
    return activations_[size] = scope.memory->peak(MemoryClass::activations);
  }
  int64_t keys_and_values(int rank) const {
    int64_t width = 0;
    for (const nn::AttentionSite& site : model_->geometry().attention)
      width += int64_t{2} * site.kv_heads * site.head_dim;
    return partition_.shape(rank).rows * workload_.tokens() * width * tensor::size_of(dtype_);
  }

  const models::PipelineSpec& recipe_;
  const Plan& plan_;
  DType dtype_;
  std::optional<DType> expert_dtype_;
  const nn::TokenLayout& layout_;
  parallel::Workload workload_;
  parallel::Partition partition_;
  std::unique_ptr<nn::Denoiser> model_;
  std::vector<int> owners_;
  std::map<int, int64_t> weights_;                          // by number of experts
  std::map<std::pair<int, int64_t>, int64_t> activations_;  // by rows, and tokens of each
};

}  // namespace

std::vector<Inspection::Rank> rank_memory(const models::PipelineSpec& recipe,
                                          const RunOptions& options, const nn::TokenLayout& layout,
                                          const parallel::Workload& workload) {
  tensor::Scope aside;  // the rehearsal on meta counts for nobody
  const tensor::BindScope rehearsal(aside);
  Ranks ranks(recipe, options, layout, workload);
  std::vector<Inspection::Rank> all;
  for (int r = 0; r < options.plan.world(); ++r) all.push_back(ranks(r));
  return all;
}

}  // namespace tessera::pipeline
