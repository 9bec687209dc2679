#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/moe/expert_cache.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::completion {

/// The portion of a language model that a rank builds. `streams`: without routed experts, because a
/// cache reads them.
nn::Portion token_portion(const runtime::ModelState& state, const RunOptions& options, int rank,
                          bool streams);

/// The number of experts in a rank's memory: at most `most`, and at most the rank's experts.
int64_t resident_experts(const runtime::ModelState& state, int64_t most, int rank);

/// The number of routed experts of a rank, over all layers.
int64_t all_experts(const Plan& plan, const nn::Geometry& geometry, int rank);

/// Whether an open language model can read experts on demand: the ranks support streaming, the
/// device is a CPU, and the folder stores experts in packed form.
bool may_stream_experts(const runtime::ModelState& state);

/// Bytes of a routed expert in memory, and read from the file (0: no files).
struct ExpertBytes {
  int64_t packed = 0, stored = 0;
};
ExpertBytes expert_bytes(const runtime::ModelState& state);

/// A cache of experts for one request on one rank: `capacity` experts stay in memory, others are
/// read from the folder on demand; on meta experts have only shapes.
std::shared_ptr<nn::ExpertCache> expert_cache(const runtime::ModelState& state, int64_t capacity,
                                              bool meta);

/// Statistics of a rank's cache, and their sum over ranks.
StreamedExperts streamed_of(const runtime::ModelState& state, int rank,
                            const nn::ExpertCache& cache);
void add_streamed(const StreamedExperts& rank, std::optional<StreamedExperts>& sum);

/// Moves experts between requests: the constructor fills a rank's cache with the experts kept by
/// the open model's last request, and the destructor keeps them for the next request. With a null
/// cache both do nothing.
class ExpertCacheLease {
 public:
  ExpertCacheLease(runtime::Language& language, int rank, nn::ExpertCache* cache);
  ~ExpertCacheLease();
  ExpertCacheLease(const ExpertCacheLease&) = delete;
  ExpertCacheLease& operator=(const ExpertCacheLease&) = delete;

 private:
  runtime::Language& language_;
  const int rank_;
  nn::ExpertCache* const cache_;
};

}  // namespace tessera::completion
