#include "completion/streamed_experts.h"

#include <algorithm>
#include <utility>

#include "load/meta_weights.h"
#include "load/weights_file.h"
#include "parallel/experts/exchange.h"
#include "parallel/setup.h"

namespace tessera::completion {

nn::Portion token_portion(const runtime::ModelState& state, const RunOptions& options, int rank,
                          bool streams) {
  const nn::Geometry geometry = state.language->geometry(runtime::dtype_of(options));
  nn::Portion portion = parallel::portion_of(options.plan, geometry, rank);
  portion.expert_dtype = runtime::expert_dtype_of(options, state.folder);
  if (streams) portion.experts.assign(static_cast<size_t>(geometry.experts.front().experts), false);
  return portion;
}

int64_t all_experts(const Plan& plan, const nn::Geometry& geometry, int rank) {
  return std::ssize(geometry.experts) * parallel::experts_of(plan, geometry, rank);
}

int64_t resident_experts(const runtime::ModelState& state, int64_t most, int rank) {
  const nn::Geometry geometry = state.language->geometry(state.dtype());
  return std::min(most, all_experts(state.options.plan, geometry, rank));
}

bool may_stream_experts(const runtime::ModelState& state) {
  return state.device() == tensor::Device::cpu && parallel::reads_experts(state.options.plan) &&
         !state.quantises_experts();
}

namespace {

nn::ReadExpert reader(const runtime::ModelState& state,
                      std::shared_ptr<const nn::Weights> weights) {
  const nn::DType dtype = state.dtype();
  return [&spec = state.language->spec(), weights = std::move(weights),
          sites = state.language->geometry(dtype).experts,
          routed = state.expert_dtype().value_or(dtype)](int site, int64_t expert) {
    return spec.expert(*weights, sites.at(static_cast<size_t>(site)).block, expert, routed);
  };
}

}  // namespace

ExpertBytes expert_bytes(const runtime::ModelState& state) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const std::shared_ptr<const load::MetaWeights> weights(
      new load::MetaWeights(state.language->on_meta()));
  const nn::ReadExpert read = reader(state, weights);
  const int sites = static_cast<int>(state.language->geometry(state.dtype()).experts.size());
  ExpertBytes bytes;
  for (int site = 0; site < sites; ++site) {  // a GGUF file may hold layers in several formats
    const ops::Expert expert = read(site, 0);
    bytes.packed = std::max(bytes.packed, scope.memory->current(tensor::MemoryClass::weights));
  }
  const load::Component& part = state.folder.component("model");
  if (!load::has_weights(part)) return bytes;
  const load::TensorSet tensors = load::open_weights(part);
  for (const auto& [name, shape] : weights->asked())
    if (tensors.has(name)) bytes.stored += tensors.entry(name).stored_bytes();
  bytes.stored /= sites;
  return bytes;
}

std::shared_ptr<nn::ExpertCache> expert_cache(const runtime::ModelState& state, int64_t capacity,
                                              bool meta) {
  std::shared_ptr<const nn::Weights> weights;
  if (meta)
    weights.reset(new load::MetaWeights(state.language->on_meta()));
  else
    weights = state.language->weights(runtime::weight_store());
  return std::make_shared<nn::ExpertCache>(capacity, reader(state, std::move(weights)));
}

StreamedExperts streamed_of(const runtime::ModelState& state, int rank,
                            const nn::ExpertCache& cache) {
  const nn::ExpertCache::Use& use = cache.use();
  return {resident_experts(state, INT64_MAX, rank), cache.capacity(), use.hits, use.misses,
          use.misses * expert_bytes(state).stored};
}

void add_streamed(const StreamedExperts& rank, std::optional<StreamedExperts>& sum) {
  StreamedExperts& total = sum ? *sum : sum.emplace();
  total.all += rank.all;
  total.resident += rank.resident;
  total.hits += rank.hits;
  total.misses += rank.misses;
  total.bytes += rank.bytes;
}

ExpertCacheLease::ExpertCacheLease(runtime::Language& language, int rank, nn::ExpertCache* cache)
    : language_(language), rank_(rank), cache_(cache) {
  if (cache_) cache_->adopt(language_.take_experts(rank_));
}

ExpertCacheLease::~ExpertCacheLease() {
  if (cache_) language_.keep_experts(rank_, cache_->release());
}

}  // namespace tessera::completion
