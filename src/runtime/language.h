#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "jinja/chat.h"
#include "jinja/chat_template.h"
#include "load/diffusers_folder.h"
#include "load/meta_weights.h"
#include "load/weight_store.h"
#include "load/weights_file.h"
#include "models/token_spec.h"
#include "nn/moe/expert_cache.h"
#include "runtime/loaded.h"
#include "runtime/remembered.h"
#include "sample/block_walk.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::runtime {

/// A language model's folder: its description, tokenizer and chat template, and its network once it
/// was needed. Thread-safe once it is open.
class Language {
 public:
  /// Reads config.json, generation_config.json, tokenizer.json and the chat template, each if there
  /// is one. Throws Error(model).
  explicit Language(const load::Component& part);

  /// Where networks that are loaded from now on compute; the cpu until it is said.
  void compute_on(tensor::Device device) { device_ = device; }
  /// RunOptions::map_weights
  void use_mapped(bool maps) { maps_ = maps; }
  const models::TokenSpec& spec() const { return spec_; }
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_template() const { return !template_.empty(); }
  /// Throws Error(model) for a folder without tokenizer.json.
  const tokenizer::ByteLevelBpe& tokens() const;
  /// Mask and end-of-text. Throws Error(model) if nothing says which token is the mask.
  sample::SpecialIds special() const;
  /// Tokens of an answer, if nothing else is asked for.
  int64_t max_tokens() const { return max_tokens_; }
  /// Whether generation_config.json says how many.
  bool says_max_tokens() const { return says_max_tokens_; }
  /// A prompt as ids: in the chat template as the user's turn if there is one and not `raw`.
  std::vector<int32_t> prompt(const std::string& text, bool raw) const;
  /// A chat as ids: messages, tools and what else the template reads. Throws Error(usage) for
  /// malformed JSON, for something that the template does not read, or a folder without template.
  std::vector<int32_t> chat(const std::string& json) const;
  /// The network for blocks of so many tokens, or a rank's part of it, checked and loaded on first
  /// use. A rank's portion is always the same, with experts or without. It counts as Loaded says.
  std::shared_ptr<const nn::TokenModel> model(
      int block, nn::DType dtype, const load::WeightStore& store, int rank,
      const nn::Portion& portion,
      const std::shared_ptr<tensor::MemoryTracker>& rank_memory = nullptr);
  /// What plans need to know of the network; reads no file, and builds it on meta once. Throws
  /// Error(plan) for a shard that the network cannot be cut into.
  nn::Geometry geometry(nn::DType dtype, const nn::Shard& shard = {}) const;
  /// Those of the files, where networks compute.
  std::shared_ptr<const nn::Weights> weights(const load::WeightStore& store) const {
    load::TensorSet tensors = load::open_weights(part_);
    tensors.use_mapped(maps_);
    return store.open(std::move(tensors), device_);
  }
  /// Routed experts that a rank of one request kept in memory, for that of the next; of two at once
  /// one finds none.
  std::vector<nn::ExpertCache::Kept> take_experts(int rank);
  void keep_experts(int rank, std::vector<nn::ExpertCache::Kept> kept);
  /// Bytes of networks and experts that are kept for the next request.
  int64_t kept_bytes() const;
  /// Lets go of them; who uses some has them until then.
  void release();
  /// Weights on meta, of the dtypes that the files say if they are there.
  load::MetaWeights on_meta() const;
  /// Throws Error(model) naming every tensor that is missing or of another shape; returns a
  /// sentence that names tensors which nothing reads, or "".
  std::string check(nn::DType dtype) const;

 private:
  std::string rendered(const jinja::ValueDict& chat) const;
  void read_template();

  load::Component part_;
  models::TokenSpec spec_;
  std::unique_ptr<tokenizer::ByteLevelBpe> tokenizer_;
  base::Json tokenizer_config_ = base::Json::object();
  std::string template_, tool_template_;  // the second for chats with tools, if there is one
  int64_t max_tokens_ = 128;
  bool says_max_tokens_ = false;
  std::string unused_;             // what nothing reads of generation_config.json, a sentence
  std::vector<int32_t> ends_;      // of generation_config.json
  Loaded<nn::TokenModel> models_;  // by rank, for one length of blocks, with experts or without
  mutable std::mutex keeping_;
  std::map<int, std::vector<nn::ExpertCache::Kept>> kept_experts_;  // by rank
  std::atomic<bool> checked_{false};
  tensor::Device device_ = tensor::Device::cpu;
  bool maps_ = false;
  Remembered<std::tuple<nn::DType, int, int>, nn::Geometry> geometry_;  // dtype, shard of how many
};

}  // namespace tessera::runtime
