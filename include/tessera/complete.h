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

/// Keys and values that a pass does not compute again: the model's own way (block or dual), none,
/// those before the block, those before and behind it, all but a window, or finished blocks.
enum class KvCache : uint8_t { automatic, none, prefix, dual, vicinity, block };
/// Which are kept; of vicinity the window, and the passes before the first that keeps any.
struct CachePolicy {
  KvCache kind = KvCache::automatic;
  int before = 16, after = 16, warmup = 0;  ///< tokens, tokens, passes
};
/// Reads the word of a KvCache, or "vicinity:BEFORE,AFTER,WARMUP". Throws Error(usage).
CachePolicy parse_cache(const std::string& text);

/// What ends an answer after end-of-text: nothing; its block; or no mask standing before it.
enum class StopAtEos : uint8_t { none, block, early };

/// A request to a masked diffusion language model. Prompts come as texts, as ids or as one chat;
/// all are one batch, and each answer is that of its prompt alone.
struct CompleteRequest {
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> prompt_ids;
  std::string chat;           ///< JSON: [{"role": ..., "content": ...}, ...] or {"messages": [...]}
  bool raw = false;           ///< prompts are not put into the model's chat template
  int64_t max_tokens = 0;     ///< 0: as generation_config.json says, else 128
  int block = 0;              ///< tokens of a block; 0: as the model says
  std::string decode;         ///< steps:N, threshold:T, edit:T,E, ...; "": as the folder says
  bool as_published = false;  ///< passes as published programs make them: more, the same numbers
  int steps = 0;  ///< commits a block is cut into, beside a threshold; 0: the model's way
  CachePolicy cache;
  StopAtEos stop_at_eos = StopAtEos::early;
  std::string select = "vanilla";  ///< which experts tokens may use: des-vote:0.4, ...
  /// Every pass that commits tokens is under the rule. select_refresh false: not those that also
  /// fill the cache (refresh), though they decide most tokens of short answers. select_prefill:
  /// passes that commit nothing (prefill, finalise) are, too.
  bool select_refresh = true, select_prefill = false;
  double temperature = 0;  ///< 0: greedy
  /// Of how many of the likeliest tokens one is drawn (0: all), and of these of the fewest that
  /// together have this probability at the temperature. How sure a pass is stays the model's own.
  int64_t top_k = 0;
  double top_p = 1;
  /// Above 1: tokens that stand in prompt or answer look less likely, and less sure (CTRL, Keskar
  /// et al. 2019): a logit above zero is divided by it, one below multiplied. Ends of text are
  /// free.
  double repetition_penalty = 1;
  uint64_t seed = 0;
  int n = 1;  ///< answers to each prompt, of seeds `seed`, `seed` + 1, ...; they stand together
  /// Log probabilities of each token, and of so many of the likeliest at its position (0: none).
  std::optional<int> logprobs;
  std::vector<std::string> stop;  ///< texts that end an answer; they are not part of it
  /// Models that denoise canvases: a safetensors file with the draws of a run, in place of noise by
  /// seed: `init` i32 [canvases, tokens], `noise` i32 and `uniform` f32 [passes, tokens]. Without
  /// `uniform` the likeliest token is drawn. For one answer. Empty: drawn from the seed.
  std::string draws;
};

/// What a pass did for one answer; handed to the caller as it happens.
struct CompleteProgress {
  int prompt = 0;                  ///< of several answers to a prompt: index of the answer
  std::string text;                ///< what has become final since the last call, whole characters
  std::vector<std::string> block;  ///< the texts of the current block's tokens; "" is a mask
  int64_t from = 0;                ///< position of the first of them
  bool ended = false;
  int64_t experts = 0;  ///< distinct ones that it read in this pass, summed over layers
};

/// Keys and values of a talk, from one request to the next: what a block-causal model keeps of the
/// finished blocks of prompt and answer. A request whose prompt begins with the same tokens, of the
/// same open model and length of blocks, does not compute these again, and has the same answer, bit
/// by bit; it then takes their place, also if it was stopped. Nothing is kept of bidirectional
/// models, of another cache than of blocks (CachePolicy), with select_prefill, of several
/// sequences, or where ranks are processes.
class KeptPrefix {
 public:
  KeptPrefix();
  KeptPrefix(const KeptPrefix&) = delete;
  KeptPrefix& operator=(const KeptPrefix&) = delete;
  ~KeptPrefix();
  int64_t tokens() const;  ///< that are kept; of a request that runs, none
  int64_t bytes() const;   ///< of memory, all ranks; while a request runs they are the request's
  void clear();

  /// Known to the library alone.
  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// What a forward pass is for: full and refresh compute everything (refresh to be kept), suffix,
/// block and window a part on what was kept; prefill and finalise only fill the cache.
enum class PassKind : uint8_t { full, refresh, suffix, block, window, prefill, finalise };

/// Why an answer ended: with end-of-text, at a stop text, or at its length.
enum class FinishReason { end, stop, length };

/// One answer.
struct Completion {
  int prompt = 0;                   ///< which one it answers
  uint64_t seed = 0;                ///< alone with it, the prompt has this answer
  std::vector<int32_t> prompt_ids;  ///< behind the chat template
  int64_t reused = 0;               ///< of these, the first ones that came from KeptPrefix
  std::vector<int32_t> ids;
  std::vector<double> confidences;  ///< of each id when it was committed
  /// Natural logarithm of what the model gave a token, by softmax over the whole vocabulary.
  struct TokenLogprob {
    int32_t id = 0;
    std::string text;  ///< "" for a folder without a tokenizer
    double logprob = 0;
    std::string bytes{};  ///< its part of the answer, perhaps of a character; "" of special tokens
  };
  struct Logprobs {
    TokenLogprob token;
    std::vector<TokenLogprob> top;  ///< the likeliest, falling; ties: the lowest id first
  };
  /// Of each id in the pass that committed it, before temperature, penalty and credit; empty if
  /// nobody asked.
  std::vector<Logprobs> logprobs;
  std::string text;  ///< "" for a folder without a tokenizer
  FinishReason finish = FinishReason::length;
  /// A forward pass that this prompt took part in.
  struct Pass {
    PassKind kind = PassKind::full;
    int64_t from = 0, to = 0, committed = 0;
    bool ruled = false;            ///< under the rule of --select
    std::vector<int64_t> experts;  ///< distinct, by layer with experts
  };
  std::vector<Pass> passes;
};

/// The answers in the order of prompts, ids, chat.
struct CompleteResult {
  std::vector<Completion> completions;
  int64_t forwards = 0;                     ///< of the batch
  int64_t experts_read = 0;                 ///< distinct in the batch, over layers and passes
  std::vector<double> pass_seconds;         ///< of each forward pass of the batch
  bool has_texts = false;                   ///< the folder has a tokenizer: the answers are texts
  double seconds = 0, bytes_read = 0;       ///< bytes: of all ranks, in memory
  std::optional<StreamedExperts> streamed;  ///< of all ranks; none: all experts were in memory
  int64_t bytes_sent = 0;                   ///< between ranks
  MemoryPeaks peak_bytes;                   ///< of this request in rank 0's process
  std::vector<Report::Rank> per_rank;       ///< what each rank held, computed and sent
  std::string select, decode, plan;         ///< plan: "" is one rank
  std::string device = "cpu";               ///< or "cuda:0 (NVIDIA H200)"
  bool elsewhere = false;                   ///< all of it is with the process of rank 0
};

/// What the caller holds in hand during a completion.
struct CompleteControl {
  std::stop_token stop;                                      ///< checked once a pass
  std::function<void(const CompleteProgress&)> on_progress;  ///< may be empty
  /// Gets what one should know about the way that a run takes, a sentence each; may be empty.
  std::function<void(const std::string&)> on_note;
  KeptPrefix* prefix = nullptr;  ///< what the last request left to this one; null: nothing
  /// Asked before each pass, if there, but with moe=fused: prompts, as ids, that join the batch of
  /// the request, behind those that there are; each has the answer that it has alone, bit by bit,
  /// but by a rule of the whole batch (scope=batch). What does not fit into memory beside those at
  /// work waits until some have ended; what is wrong ends the run, as it does in the request. Ranks
  /// that are processes all have it, or none; the first is asked, for all.
  std::function<std::vector<std::vector<int32_t>>()> join{};
  /// An answer has ended while others may be at work: completions[answer] is whole, the numbers of
  /// the batch are those up to now, without its peaks and bytes. May be empty.
  std::function<void(int answer, const CompleteResult& now)> on_answer{};
};

/// Of all committed tokens: the share that passes under the rule decided; 1 without tokens.
double ruled_share(const CompleteResult& result);
/// The result as a JSON document: prompt and ids, text, confidences, finish, usage, forwards,
/// experts.
std::string to_json(const CompleteResult& result);

}  // namespace tessera
