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

/// Keys and values that requests of a conversation pass on. Thread-safe: of two simultaneous
/// requests the second finds nothing.
struct PrefixCache::State {
  /// A rank's share: the first tokens of the sequence in whole blocks, and the tables of their keys
  /// and values.
  struct Rank {
    std::vector<int32_t> ids;
    nn::KvCache::Tables tables;
  };
  struct Keys {
    std::shared_ptr<const void> model;  ///< ModelState::identity of the computing model
    int block = 0;
    std::vector<Rank> ranks;
  };

  /// Takes the kept keys if model, block length and number of ranks match, and if the kept sequence
  /// and the prompt begin alike; `common` is the number of equal tokens, in whole blocks. Otherwise
  /// returns nothing. In both cases nothing stays in the store.
  Keys take(const std::shared_ptr<const void>& model, int block, size_t ranks,
            const std::vector<int32_t>& prompt, int64_t& common);
  /// Keeps the tokens that all ranks have in common, or nothing.
  void put(Keys keys);

  mutable std::mutex mutex;
  Keys keys;
};

namespace completion {

/// A rank's keys and values of finished blocks: `reused` tokens come from an earlier request, and
/// the destructor keeps the finished blocks for the next request. With a null rank all methods do
/// nothing.
class RankPrefix {
 public:
  RankPrefix(PrefixCache::State::Rank* rank, int64_t reused, nn::KvCache& cache);
  ~RankPrefix();
  RankPrefix(const RankPrefix&) = delete;
  RankPrefix& operator=(const RankPrefix&) = delete;
  /// Updates the kept tokens after a pass.
  void see(const sample::BlockWalk& walk);

 private:
  PrefixCache::State::Rank* rank_;
  nn::KvCache& cache_;
};

/// An earlier request's keys, on loan to this request; the destructor returns the keys in every
/// case.
struct PrefixLease {
  PrefixCache* prefix;
  PrefixCache::State::Keys keys{};  ///< no ranks: nothing is kept

  PrefixLease(const runtime::ModelState& state, const CompleteRequest& q,
              const sample::DecodingPolicy& policy, PrefixCache* of,
              std::vector<sample::TokenPrompt>& prompts);
  ~PrefixLease() {
    if (!keys.ranks.empty()) prefix->state().put(std::move(keys));
  }
  PrefixLease(const PrefixLease&) = delete;
  PrefixLease& operator=(const PrefixLease&) = delete;
};

}  // namespace completion
}  // namespace tessera
