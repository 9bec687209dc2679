#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/moe/expert_cache.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::completion {

/// What a rank builds of a language model; `streams`: without routed experts, which a cache reads.
nn::Portion token_portion(const runtime::ModelState& state, const RunOptions& options, int rank,
                          bool streams);

/// Of so many experts that a rank of an open model keeps at most those that it has.
int64_t resident_experts(const runtime::ModelState& state, int64_t most, int rank);

/// Routed experts of all layers that a rank of a plan has.
int64_t all_experts(const Plan& plan, const nn::Geometry& geometry, int rank);

/// Whether the experts of an open language model can be read when tokens go to them: by ranks that
/// can, on a CPU, from a folder that holds them as they are packed.
bool may_stream_experts(const runtime::ModelState& state);

/// Of one routed expert: what it takes in memory, and what is read of it (0: there are no files).
struct ExpertBytes {
  int64_t packed = 0, stored = 0;
};
ExpertBytes expert_bytes(const runtime::ModelState& state);

/// For one request on one rank: so many experts stay in memory, others are read from the folder; of
/// a stage on meta they have shapes alone.
std::shared_ptr<nn::ExpertCache> expert_cache(const runtime::ModelState& state, int64_t capacity,
                                              bool meta);

/// What a rank's cache has done; and the sum over ranks.
StreamedExperts streamed_of(const runtime::ModelState& state, int rank,
                            const nn::ExpertCache& cache);
void add_streamed(const StreamedExperts& rank, std::optional<StreamedExperts>& sum);

/// While it lives a rank's cache holds what the last request of an open model kept in memory there;
/// then it is kept for the next one, however this one ends. Of no cache it does nothing.
class LastingExperts {
 public:
  LastingExperts(runtime::Language& language, int rank, nn::ExpertCache* cache);
  ~LastingExperts();
  LastingExperts(const LastingExperts&) = delete;
  LastingExperts& operator=(const LastingExperts&) = delete;

 private:
  runtime::Language& language_;
  const int rank_;
  nn::ExpertCache* const cache_;
};

}  // namespace tessera::completion
