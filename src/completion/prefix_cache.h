#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nn/kv_cache.h"
#include "runtime/model_state.h"
#include "sample/block_walk.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera {

/// Conversations that requests pass on. Thread-safe.
struct PrefixCache::State {
  /// The first tokens of a sequence, in whole blocks, and each rank's keys and values of them.
  struct Conversation {
    std::string owner;
    std::shared_ptr<const void> model;  ///< ModelState::identity of the computing model
    int block = 0;
    std::vector<int32_t> ids;
    std::vector<std::shared_ptr<const nn::KvCache::Tables>> ranks;

    int64_t bytes() const;
    bool fits(const Conversation& other) const;  ///< same owner, model, block length, ranks
  };

  explicit State(int64_t limit);
  ~State();
  /// Finds the conversation that begins like `conversation` for the most tokens; `common` is their
  /// number, in whole blocks. Without such a conversation `ranks` is empty. A cache of one
  /// conversation keeps nothing in either case.
  Conversation find(const Conversation& conversation, int64_t& common);
  /// Keeps a conversation in place of its beginnings. The least recently used ones leave.
  void put(Conversation conversation);
  int64_t bytes() const;
  void clear();
  int64_t tokens() const;

  const int64_t limit;  ///< bytes of all conversations; 0: one conversation of any size

 private:
  mutable std::mutex mutex_;
  std::list<Conversation> kept_;                   // the most recently used one is first
  std::optional<runtime::PooledModel> residence_;  // leaves when a run needs the memory
};

namespace completion {

/// Conversations on loan to the sequences of a run, and those that the sequences leave. Ranks of
/// this process share it. Thread-safe.
class PrefixLease {
 public:
  PrefixLease(const runtime::ModelState& state, const CompleteRequest& q,
              const sample::DecodingPolicy& policy, const CompleteControl& control,
              std::vector<sample::TokenPrompt>& prompts);
  ~PrefixLease();
  PrefixLease(const PrefixLease&) = delete;
  PrefixLease& operator=(const PrefixLease&) = delete;

  bool keeps() const { return prefix_ != nullptr; }
  /// Whether a conversation of this size may be kept.
  bool fits(int64_t bytes_of_rank) const;
  /// Looks for the beginning of the next sequence's prompt.
  void find(const std::vector<int32_t>& prompt);
  /// Writes the found beginning into the prompt of a sequence.
  void tell(int sequence, sample::TokenPrompt& prompt) const;
  /// A rank's keys and values of a sequence's found tokens, once.
  std::shared_ptr<const nn::KvCache::Tables> take(int sequence, int rank);
  /// A rank's sequence ended with these tokens. All ranks have them in common, or nothing is kept.
  void leave(int sequence, int rank, std::vector<int32_t> ids, nn::KvCache::Tables tables);

 private:
  /// A sequence's loan, and its successor.
  struct Loan {
    PrefixCache::State::Conversation match, successor;
    int64_t common = 0;
    size_t takers = 0, givers = 0;  // by ranks
    bool alike = true;
  };

  PrefixCache::State* prefix_ = nullptr;  // null: nothing is kept
  PrefixCache::State::Conversation form_;
  std::function<std::string(int)> owner_;
  mutable std::mutex mutex_;
  std::vector<Loan> loans_;
};

/// A rank's keys and values of finished blocks, by sequence. The destructor leaves those of all
/// sequences that were not left before.
class RankPrefix {
 public:
  /// `prompts`: of all sequences, growing while others join. `joins`: slots of an ended sequence
  /// may go. `sites`: of the model's attention.
  RankPrefix(PrefixLease& lease, int rank, const std::vector<sample::TokenPrompt>& prompts,
             bool joins, int sites, nn::KvCache& cache);
  ~RankPrefix();
  RankPrefix(const RankPrefix&) = delete;
  RankPrefix& operator=(const RankPrefix&) = delete;
  /// Sets the keys and values of sequences that joined.
  void adopt();
  /// Updates the kept tokens after a pass.
  void see(int sequence, const sample::BlockWalk& walk);
  void ended(int sequence);

 private:
  bool worth(const std::vector<int32_t>& ids) const;
  nn::KvCache::Tables tables_of(int sequence, int64_t tokens, bool last);
  void leave(int sequence, bool last);

  PrefixLease& lease_;
  const int rank_;
  const std::vector<sample::TokenPrompt>& prompts_;
  const bool joins_;
  const int sites_;
  nn::KvCache& cache_;
  std::map<int, std::vector<int32_t>> ids_;  // kept tokens by sequence, until left
  size_t adopted_ = 0;
};

}  // namespace completion
}  // namespace tessera
