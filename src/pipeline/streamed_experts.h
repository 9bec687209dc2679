#pragma once

#include <memory>

#include "nn/moe/expert_cache.h"
#include "pipeline/model_state.h"

namespace tessera::pipeline {

/// What a rank builds of a language model; `streams`: without routed experts, which a cache reads.
nn::Portion token_portion(const ModelState& state, const RunOptions& options, int rank,
                          bool streams);

/// Experts of all layers of a language model.
int64_t all_experts(const nn::Geometry& geometry);

/// Whether the experts of an open language model can be read when tokens go to them: on one rank,
/// on a CPU, from a folder that holds them as they are packed.
bool may_stream_experts(const ModelState& state);

/// Of one routed expert: what it takes in memory, and what is read of it (0: there are no files).
struct ExpertBytes {
  int64_t packed = 0, stored = 0;
};
ExpertBytes expert_bytes(const ModelState& state);

/// For one request: so many experts stay in memory, others are read from the folder; of a stage on
/// meta they have shapes alone.
std::shared_ptr<nn::ExpertCache> expert_cache(const ModelState& state, int64_t capacity, bool meta);

/// While it lives a cache holds what the last request of an open model kept in memory; then it is
/// kept for the next one, however this one ends. Of no cache it does nothing.
class LastingExperts {
 public:
  LastingExperts(Language& language, nn::ExpertCache* cache);
  ~LastingExperts();
  LastingExperts(const LastingExperts&) = delete;
  LastingExperts& operator=(const LastingExperts&) = delete;

 private:
  Language& language_;
  nn::ExpertCache* const cache_;
};

}  // namespace tessera::pipeline
