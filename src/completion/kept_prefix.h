#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "nn/kv_cache.h"
#include "runtime/model_state.h"
#include "sample/block_walk.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera {

/// What the requests of one talk hand on. Thread-safe: of two that are given it at once one finds
/// nothing.
struct KeptPrefix::State {
  /// Of a rank: the first tokens of the sequence, whole blocks, and tables with their keys and
  /// values.
  struct Rank {
    std::vector<int32_t> ids;
    nn::KvCache::Tables tables;
  };
  struct Keys {
    std::shared_ptr<const void> model;  ///< ModelState::identity of who computed them
    int block = 0;
    std::vector<Rank> ranks;
  };

  /// What is kept, if it is this model's, of blocks of this length and of so many ranks, and its
  /// sequence begins as the prompt does: then `common` is how many tokens, in whole blocks. Else
  /// nothing. Either way nothing is kept any more.
  Keys take(const std::shared_ptr<const void>& model, int block, size_t ranks,
            const std::vector<int32_t>& prompt, int64_t& common);
  /// Keeps what all ranks have alike, or nothing.
  void put(Keys keys);

  mutable std::mutex mutex;
  Keys keys;
};

namespace completion {

/// A rank's keys and values of finished blocks: `reused` tokens from an earlier request, and
/// however this one ends, for the next. Of no rank it does nothing.
class HandedOn {
 public:
  HandedOn(KeptPrefix::State::Rank* rank, int64_t reused, nn::KvCache& cache);
  ~HandedOn();
  HandedOn(const HandedOn&) = delete;
  HandedOn& operator=(const HandedOn&) = delete;
  /// Where the sequence stands after a pass.
  void see(const sample::BlockWalk& walk);

 private:
  KeptPrefix::State::Rank* rank_;
  nn::KvCache& cache_;
};

/// What an earlier request left, while this one has it; it goes back however this one ends.
struct PrefixLease {
  KeptPrefix* prefix;
  KeptPrefix::State::Keys keys{};  ///< no ranks: nothing is kept

  PrefixLease(const runtime::ModelState& state, const CompleteRequest& q,
              const sample::DecodingPolicy& policy, KeptPrefix* of,
              std::vector<sample::TokenPrompt>& prompts);
  ~PrefixLease() {
    if (!keys.ranks.empty()) prefix->state().put(std::move(keys));
  }
  PrefixLease(const PrefixLease&) = delete;
  PrefixLease& operator=(const PrefixLease&) = delete;
};

}  // namespace completion
}  // namespace tessera
