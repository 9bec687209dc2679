#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/report.h"

namespace tessera {

/// Keys and values a pass reuses: the model's default (block or dual), none, those before the
/// block, those before and behind it, all outside a window, or finished blocks.
enum class KvCache : uint8_t { automatic, none, prefix, dual, vicinity, block };
/// The cache; for vicinity also the window, and the first passes without a cache.
struct CachePolicy {
  KvCache kind = KvCache::automatic;
  int before = 16, after = 16, warmup = 0;  ///< tokens, tokens, passes
};
/// Reads the word of a KvCache, or "vicinity:BEFORE,AFTER,WARMUP". Throws Error(usage).
CachePolicy parse_cache(const std::string& text);

/// The end of an answer after end-of-text: none, its block, or as soon as no mask precedes the
/// token.
enum class StopAtEos : uint8_t { none, block, early };

/// A request to a masked diffusion language model. Prompts are texts, ids or one chat. They form
/// one batch, and each answer equals that of its prompt alone.
struct CompleteRequest {
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> prompt_ids;
  /// JSON: [{"role": ..., "content": ...}, ...] or {"messages": [...], "enable_thinking": ...}.
  std::string chat;
  bool raw = false;           ///< prompts do not pass through the chat template
  int64_t max_tokens = 0;     ///< 0: from generation_config.json, else 128
  int block = 0;              ///< tokens of a block; 0: the model's default
  std::string decode;         ///< steps:N, threshold:T, edit:T,E, ...; "": the folder's default
  bool as_published = false;  ///< the passes of the published programs: more passes, equal numbers
  int steps = 0;              ///< commits of a block, beside a threshold; 0: the model's default
  CachePolicy cache;
  StopAtEos stop_at_eos = StopAtEos::early;
  std::string select = "vanilla";  ///< experts that tokens may use: des-vote:0.4, ...
  /// All passes that commit tokens follow the rule. select_refresh false: except passes that also
  /// fill the cache (refresh), although they decide most tokens of short answers. select_prefill:
  /// passes that commit nothing (prefill, finalise) follow the rule, too.
  bool select_refresh = true, select_prefill = false;
  double temperature = 0;  ///< 0: greedy
  /// Draws come from the top_k likeliest tokens (0: all), and among these from the fewest with
  /// total probability top_p at the temperature. The confidence of a pass stays the model's own.
  int64_t top_k = 0;
  double top_p = 1;
  /// Above 1: tokens of prompt or answer become less likely and less certain (CTRL, Keskar et al.
  /// 2019). Positive logits are divided by the penalty, negative ones multiplied. Ends of text are
  /// exempt.
  double repetition_penalty = 1;
  uint64_t seed = 0;
  int n = 1;  ///< answers to each prompt, with seeds `seed`, `seed` + 1, ..., in order
  /// Log probabilities of each token, and of the likeliest N at each position (0: none).
  std::optional<int> logprobs;
  std::vector<std::string> stop;  ///< texts that end an answer, which excludes them
  /// For models with canvases: a safetensors file with stored draws: `init` i32 [canvases, tokens],
  /// `noise` i32 and `uniform` f32 [passes, tokens]. Without `uniform` the likeliest token is
  /// drawn. For a single answer. Empty: draws from the seed.
  std::string draws;
};

/// The work of a pass for one answer, reported during the run.
struct CompleteProgress {
  int prompt = 0;                  ///< index of the answer
  std::string text;                ///< text that became final since the last call, whole characters
  std::vector<std::string> block;  ///< texts of the current block's tokens; "": not decided
  int64_t from = 0;                ///< position of the block's first token
  bool ended = false;
  int64_t experts = 0;  ///< distinct experts read in this pass, summed over layers
};

/// Cached keys and values of conversations, from one request to the next: those of finished blocks
/// of a block-causal model, or of the text before an open canvas. A request with the same first
/// tokens, model and (without canvases) block length reuses them and has the same answer, bit by
/// bit. Its own then replace them, even after a stop. Nothing is cached for bidirectional models,
/// for other caches than blocks (CachePolicy), with select_prefill, or where ranks are processes.
/// Thread-safe.
class PrefixCache {
 public:
  /// `limit`: bytes of all conversations, the least recently used of which leave, as they do when
  /// runs need their memory (RunOptions::keep_parts). 0: the last conversation of any size, and
  /// none for requests of several sequences or that others may join.
  explicit PrefixCache(int64_t limit = 0);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();
  int64_t tokens() const;  ///< cached tokens; without a limit 0 during a request
  int64_t bytes() const;   ///< memory on all ranks
  void clear();

  /// Known to the library alone.
  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// The purpose of a forward pass: full and refresh compute everything (refresh fills the cache),
/// suffix, block and window compute a part; prefill and finalise only fill the cache.
enum class PassKind : uint8_t { full, refresh, suffix, block, window, prefill, finalise };

/// The end of an answer: end-of-text, a stop text, or the maximum length.
enum class FinishReason { end, stop, length };

/// An answer.
struct Completion {
  int prompt = 0;                   ///< index of its prompt
  uint64_t seed = 0;                ///< the prompt alone has this answer with this seed
  std::vector<int32_t> prompt_ids;  ///< after the chat template
  int64_t reused = 0;               ///< first tokens of the prompt that came from PrefixCache
  std::vector<int32_t> ids;
  std::vector<double> confidences;  ///< confidence of each id in the pass that committed each
  /// Natural logarithm of a token's probability, by softmax over the whole vocabulary.
  struct TokenLogprob {
    int32_t id = 0;
    std::string text;  ///< "" for a folder without a tokenizer
    double logprob = 0;
    std::string bytes{};  ///< its part of the answer, perhaps of a character; "" of special tokens
  };
  struct Logprobs {
    TokenLogprob token;
    std::vector<TokenLogprob> top;  ///< the likeliest, falling; ties: lowest id first
  };
  /// For each id in its committing pass, before temperature, penalty and credit; empty without a
  /// request.
  std::vector<Logprobs> logprobs;
  std::string text;  ///< "" for a folder without a tokenizer
  FinishReason finish = FinishReason::length;
  /// A forward pass for this prompt.
  struct Pass {
    PassKind kind = PassKind::full;
    int64_t from = 0, to = 0, committed = 0;
    bool ruled = false;            ///< follows the rule of --select
    std::vector<int64_t> experts;  ///< distinct experts, by layer with experts
  };
  std::vector<Pass> passes;
};

/// The answers in the order of prompts, ids, chat.
struct CompleteResult {
  std::vector<Completion> completions;
  int64_t forwards = 0;                     ///< passes of the batch
  int64_t experts_read = 0;                 ///< distinct in the batch, over layers and passes
  std::vector<int64_t> expert_load;         ///< as Report::expert_load; complete at the end
  std::vector<double> pass_seconds;         ///< seconds of each pass of the batch
  bool has_texts = false;                   ///< the folder has a tokenizer: the answers are texts
  double seconds = 0, bytes_read = 0;       ///< bytes: on all ranks, from memory
  std::optional<StreamedExperts> streamed;  ///< all ranks; none: all experts were in memory
  int64_t bytes_sent = 0;                   ///< between ranks
  MemoryPeaks peak_bytes;                   ///< this request in rank 0's process
  std::vector<Report::Rank> per_rank;       ///< memory, work and traffic of each rank
  std::string select, decode, plan;         ///< plan: "" is one rank
  int64_t max_tokens = 0;                   ///< the most tokens of an answer
  std::string limit;           ///< says so: "request", "generation_config.json" or "default"
  std::string device = "cpu";  ///< or "cuda:0 (NVIDIA H200)"
  bool elsewhere = false;      ///< all of the result is with the process of rank 0
};

/// Control and callbacks during a completion.
struct CompleteControl {
  std::stop_token stop;                                      ///< checked in each pass
  std::function<void(const CompleteProgress&)> on_progress;  ///< may be empty
  /// Receives notes on the course of a run, a sentence each; may be empty.
  std::function<void(const std::string&)> on_note;
  PrefixCache* prefix = nullptr;  ///< cache of earlier requests; null: none
  /// Called before each pass, if present (not with moe=fused): returns prompts, as ids, to join the
  /// batch behind the present ones. Each answer equals that of its prompt alone, bit by bit, except
  /// under a rule with scope=batch. Prompts without room in memory wait until others end. An
  /// invalid prompt ends the run with an error. Processes all have this callback, or none; rank 0's
  /// is called, for all.
  std::function<std::vector<std::vector<int32_t>>()> join{};
  /// The owner of an answer, who alone reuses its conversation in `prefix`; may be empty: one
  /// owner. Called on the thread of rank 0.
  std::function<std::string(int answer)> owner{};
  /// An answer ended while others may continue: completions[answer] is complete; numbers of the
  /// batch are those up to now, without peaks and bytes. May be empty.
  std::function<void(int answer, const CompleteResult& now)> on_answer{};
};

/// Share of committed tokens that passes under the rule decided; 1 without tokens.
double ruled_share(const CompleteResult& result);
/// The result as a JSON document: prompt and ids, text, confidences, finish, usage, forwards,
/// experts.
std::string to_json(const CompleteResult& result);

}  // namespace tessera
