#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/moe/expert_cache.h"
#include "pipeline/rehearse.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// What a rank builds of a language model; `streams`: without routed experts, which a cache reads.
nn::Portion token_portion(const ModelState& state, const RunOptions& options, int rank,
                          bool streams);

/// Of so many experts that a rank of an open model keeps at most those that it has.
int64_t resident_experts(const ModelState& state, int64_t most, int rank);

/// Whether the experts of an open language model can be read when tokens go to them: by ranks that
/// can, on a CPU, from a folder that holds them as they are packed.
bool may_stream_experts(const ModelState& state);

/// Of one routed expert: what it takes in memory, and what is read of it (0: there are no files).
struct ExpertBytes {
  int64_t packed = 0, stored = 0;
};
ExpertBytes expert_bytes(const ModelState& state);

/// What the ranks of a plan hold of experts that are read while they run.
class HeldExperts {
 public:
  HeldExperts(const ModelState& state, const RunOptions& options);
  /// That the rank with most of them has, in all layers.
  int64_t most() const;
  /// Of this process, if each rank keeps so many at most.
  int64_t bytes(int64_t kept) const;
  /// So many, too, beside what a run takes without them.
  Rehearsal beside(Rehearsal others, int64_t kept) const;

 private:
  const RunOptions& options_;
  const int64_t each_;
  std::vector<int64_t> has_;  // by rank
};

/// For one request on one rank: so many experts stay in memory, others are read from the folder; of
/// a stage on meta they have shapes alone.
std::shared_ptr<nn::ExpertCache> expert_cache(const ModelState& state, int64_t capacity, bool meta);

/// What a rank's cache has done; and the sum over ranks.
StreamedExperts streamed_of(const ModelState& state, int rank, const nn::ExpertCache& cache);
void add_streamed(const StreamedExperts& rank, std::optional<StreamedExperts>& sum);

/// While it lives a rank's cache holds what the last request of an open model kept in memory there;
/// then it is kept for the next one, however this one ends. Of no cache it does nothing.
class LastingExperts {
 public:
  LastingExperts(Language& language, int rank, nn::ExpertCache* cache);
  ~LastingExperts();
  LastingExperts(const LastingExperts&) = delete;
  LastingExperts& operator=(const LastingExperts&) = delete;

 private:
  Language& language_;
  const int rank_;
  nn::ExpertCache* const cache_;
};

}  // namespace tessera::pipeline
