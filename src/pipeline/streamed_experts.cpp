#include "pipeline/streamed_experts.h"

#include <utility>

#include "load/meta_weights.h"
#include "parallel/setup.h"

namespace tessera::pipeline {

nn::Portion token_portion(const ModelState& state, const RunOptions& options, int rank,
                          bool streams) {
  const nn::Geometry geometry = state.language->geometry(dtype_of(options));
  nn::Portion portion = parallel::portion_of(options.plan, geometry, rank);
  portion.expert_dtype = expert_dtype_of(options, state.folder);
  if (streams) portion.experts.assign(static_cast<size_t>(geometry.experts.front().experts), false);
  return portion;
}

int64_t all_experts(const nn::Geometry& geometry) {
  int64_t count = 0;
  for (const nn::ExpertSite& site : geometry.experts) count += site.experts;
  return count;
}

bool may_stream_experts(const ModelState& state) {
  return state.device() == tensor::Device::cpu && state.options.plan.ranks() == 1 &&
         !state.quantises_experts();
}

namespace {

nn::ReadExpert reader(const ModelState& state, std::shared_ptr<const nn::Weights> weights) {
  const nn::DType dtype = state.dtype();
  return [&spec = state.language->spec(), weights = std::move(weights),
          sites = state.language->geometry(dtype).experts,
          routed = state.expert_dtype().value_or(dtype)](int site, int64_t expert) {
    return spec.expert(*weights, sites.at(static_cast<size_t>(site)).block, expert, routed);
  };
}

}  // namespace

ExpertBytes expert_bytes(const ModelState& state) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const std::shared_ptr<const load::MetaWeights> weights(
      new load::MetaWeights(state.language->on_meta()));
  const ops::Expert one = reader(state, weights)(0, 0);
  ExpertBytes bytes{scope.memory->current(tensor::MemoryClass::weights)};
  const load::Component& part = state.folder.component("model");
  if (!load::has_weights(part.folder)) return bytes;
  const load::TensorSet tensors = load::open_weights(part);
  for (const auto& [name, shape] : weights->asked())
    if (tensors.has(name)) bytes.stored += tensors.entry(name).bytes();
  return bytes;
}

std::shared_ptr<nn::ExpertCache> expert_cache(const ModelState& state, int64_t capacity,
                                              bool meta) {
  std::shared_ptr<const nn::Weights> weights;
  if (meta)
    weights.reset(new load::MetaWeights(state.language->on_meta()));
  else
    weights = state.language->weights(weight_store());
  return std::make_shared<nn::ExpertCache>(capacity, reader(state, std::move(weights)));
}

LastingExperts::LastingExperts(Language& language, nn::ExpertCache* cache)
    : language_(language), cache_(cache) {
  if (cache_) cache_->adopt(language_.take_experts());
}

LastingExperts::~LastingExperts() {
  if (cache_) language_.keep_experts(cache_->release());
}

}  // namespace tessera::pipeline
