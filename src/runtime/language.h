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
#include "runtime/memo.h"
#include "runtime/network_cache.h"
#include "sample/block_walk.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::runtime {

/// A language model's folder: description, tokenizer, chat template, and the network after the
/// first use. Thread-safe after the constructor.
class Language {
 public:
  /// Reads config.json, generation_config.json, tokenizer.json and the chat template, if present.
  /// Throws Error(model).
  explicit Language(const load::Component& part);

  /// Sets the device of networks loaded from now on; the default is the CPU.
  void compute_on(tensor::Device device) { device_ = device; }
  /// RunOptions::map_weights
  void use_mapped(bool maps) { maps_ = maps; }
  /// Rules for weights that a file holds in block formats.
  void use_rules(const load::QuantiseRules& rules) { rules_ = rules; }
  const models::TokenSpec& spec() const { return spec_; }
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_template() const { return !template_.empty(); }
  /// Throws Error(model) for a folder without tokenizer.json.
  const tokenizer::ByteLevelBpe& tokens() const;
  /// Ids of mask and end-of-text. Throws Error(model) if no file defines the mask token.
  sample::SpecialIds special() const;
  /// The number of tokens of an answer without --max-tokens.
  int64_t max_tokens() const { return max_tokens_; }
  /// Whether generation_config.json sets the number.
  bool says_max_tokens() const { return says_max_tokens_; }
  /// A prompt as ids: a user turn of the chat template, if the folder has a template and `raw` is
  /// false.
  std::vector<int32_t> prompt(const std::string& text, bool raw) const;
  /// A chat as ids: messages, tools and other inputs of the template. Throws Error(usage) for
  /// malformed JSON, for inputs that the template does not read, and for a folder without template.
  std::vector<int32_t> chat(const std::string& json) const;
  /// The network for blocks of `block` tokens, or a rank's part of the network, checked and loaded
  /// on first use. A rank's portion is always the same, with experts or without. Counted as in
  /// Loaded.
  std::shared_ptr<const nn::TokenModel> model(
      int block, nn::DType dtype, const load::WeightStore& store, int rank,
      const nn::Portion& portion,
      const std::shared_ptr<tensor::MemoryTracker>& rank_memory = nullptr);
  /// The network's geometry for plans; reads no files, and builds the network on meta once. Throws
  /// Error(plan) for a shard that does not divide the network.
  nn::Geometry geometry(nn::DType dtype, const nn::Shard& shard = {}) const;
  /// Weights of the files, on the device of networks.
  std::shared_ptr<const nn::Weights> weights(const load::WeightStore& store) const {
    load::TensorSet files = tensors();
    files.use_mapped(maps_);
    return store.open(std::move(files), device_);
  }
  /// Experts in memory that a rank's last request kept for the next request; of two simultaneous
  /// requests the second finds none.
  std::vector<nn::ExpertCache::Kept> take_experts(int rank);
  void keep_experts(int rank, std::vector<nn::ExpertCache::Kept> experts);
  /// Bytes of networks and experts kept for the next request.
  int64_t kept_bytes() const;
  /// Releases networks and experts; running requests keep their references.
  void release();
  /// Weights on meta, with the dtypes of the files, if present.
  load::MetaWeights on_meta() const;
  /// Throws Error(model) naming every tensor with a missing or wrong shape; returns a sentence
  /// naming unused tensors, or "".
  std::string check(nn::DType dtype) const;

 private:
  load::TensorSet tensors() const;
  std::string rendered(const jinja::ValueDict& chat) const;
  void read_template();

  load::Component part_;
  models::TokenSpec spec_;
  std::unique_ptr<tokenizer::ByteLevelBpe> tokenizer_;
  base::Json tokenizer_config_ = base::Json::object();
  std::string template_, tool_template_;  // the second for chats with tools, if present
  int64_t max_tokens_ = 128;
  bool says_max_tokens_ = false;
  std::string unused_;                   // a sentence naming unused keys of generation_config.json
  std::vector<int32_t> ends_;            // end tokens of generation_config.json
  NetworkCache<nn::TokenModel> models_;  // by rank, for a length of blocks, with experts or without
  mutable std::mutex keeping_;
  std::map<int, std::vector<nn::ExpertCache::Kept>> kept_experts_;  // by rank
  std::atomic<bool> checked_{false};
  tensor::Device device_ = tensor::Device::cpu;
  bool maps_ = false;
  load::QuantiseRules rules_;
  Memo<std::tuple<nn::DType, int, int>, nn::Geometry> geometry_;  // by dtype, shard, shards
};

}  // namespace tessera::runtime
