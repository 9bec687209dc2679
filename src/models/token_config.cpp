#include "models/token_config.h"

#include <algorithm>

#include "base/fail.h"
#include "models/llada_shard.h"

namespace tessera::models {
namespace {

using base::Json;

constexpr int64_t kMost = int64_t{1} << 24;  // no size in a configuration is larger

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
}

bool is_whole(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>() <= uint64_t(high) && int64_t(value.get<uint64_t>()) >= low;
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

}  // namespace

bool TokenConfig::has(const char* key) const {
  return config_.is_object() && config_.contains(key) && !config_.at(key).is_null();
}

const Json& TokenConfig::at(const char* key) const {
  require(has(key), ErrorCode::model, "{}: '{}' is missing; use the config.json of the model",
          where_, key);
  return config_.at(key);
}

int64_t TokenConfig::integer(const char* key, int64_t low, int64_t high) const {
  require(is_whole(at(key), low, high), ErrorCode::model,
          "{}: '{}' is {}; expected a whole number from {} to {}", where_, key, shown(at(key)), low,
          high);
  return at(key).get<int64_t>();
}

int64_t TokenConfig::integer_or(const char* key, int64_t low, int64_t high,
                                int64_t otherwise) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

double TokenConfig::number_or(const char* key, double low, double high, double otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  require(value.is_number() && value.get<double>() >= low && value.get<double>() <= high,
          ErrorCode::model, "{}: '{}' is {}; expected a number from {} to {}", where_, key,
          shown(value), low, high);
  return value.get<double>();
}

bool TokenConfig::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  require(at(key).is_boolean(), ErrorCode::model, "{}: '{}' is {}; expected true or false", where_,
          key, shown(at(key)));
  return at(key).get<bool>();
}

std::string TokenConfig::text_or(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  require(at(key).is_string(), ErrorCode::model, "{}: '{}' is {}; expected text", where_, key,
          shown(at(key)));
  return at(key).get<std::string>();
}

std::vector<int32_t> TokenConfig::ids(const char* key, int64_t vocabulary) const {
  if (!has(key)) return {};
  const Json list = at(key).is_array() ? at(key) : Json::array({at(key)});
  std::vector<int32_t> all;
  for (const Json& id : list) {
    require(is_whole(id, 0, vocabulary - 1), ErrorCode::model,
            "{}: '{}' is {}; expected token ids from 0 to {}", where_, key, shown(at(key)),
            vocabulary - 1);
    all.push_back(id.get<int32_t>());
  }
  return all;
}

std::vector<bool> TokenConfig::flags(const char* key, size_t count) const {
  if (!has(key)) return std::vector<bool>(count, true);
  const Json& value = at(key);
  auto bit = [&](const Json& one) {
    require(is_whole(one, 0, 1), ErrorCode::model, "{}: '{}' holds {}; expected 0 or 1", where_,
            key, shown(one));
    return one.get<int>() == 1;
  };
  if (!value.is_array()) return std::vector<bool>(count, bit(value));
  require(value.size() == count, ErrorCode::model, "{}: '{}' has {} entries for {} layers", where_,
          key, value.size(), count);
  std::vector<bool> all;
  for (const Json& one : value) all.push_back(bit(one));
  return all;
}

void TokenConfig::refuse(const char* key, const std::string& expected) const {
  fail(ErrorCode::model, "{}: '{}' is {}, which is not supported; supported is {}", where_, key,
       has(key) ? shown(at(key)) : "missing", expected);
}

void read_common(const TokenConfig& read, LladaConfig& c, TokenFacts& facts) {
  c.vocabulary = read.integer("vocab_size", 2, kMost);
  c.hidden = read.integer("hidden_size", 8, kMost);
  c.heads = read.integer("num_attention_heads", 1, 10000);
  c.kv_heads = read.integer_or("num_key_value_heads", 1, c.heads, c.heads);
  c.head_dim = read.integer_or("head_dim", 8, 512, c.hidden / c.heads);
  c.eps = read.number_or("rms_norm_eps", 0, 1, 1e-6);
  c.rope_theta = read.number_or("rope_theta", 1, 1e12, 10000);
  c.tied = read.flag("tie_word_embeddings", false);
  c.experts = read.integer("num_experts", 1, 1 << 16);
  c.top_k = read.integer("num_experts_per_tok", 1, c.experts);
  c.scale = read.number_or("routed_scaling_factor", 0, 1e6, 1);
  if (read.text_or("hidden_act", "silu") != "silu") read.refuse("hidden_act", "\"silu\"");
  if (read.has("rope_scaling")) read.refuse("rope_scaling", "null");
  require(c.heads % c.kv_heads == 0 && c.head_dim % 8 == 0, ErrorCode::model,
          "{}: {} heads over {} key heads of {} channels do not fit; expected a multiple, and "
          "channels in eights",
          read.where(), c.heads, c.kv_heads, c.head_dim);
  const double part = read.number_or("partial_rotary_factor", 0, 1, 1);
  const int64_t rotary =
      read.integer_or("rotary_dim", 2, c.head_dim, static_cast<int64_t>(part * double(c.head_dim)));
  require(rotary >= 2 && rotary % 2 == 0, ErrorCode::model,
          "{}: {} rotary channels of {}; expected an even number", read.where(), rotary,
          c.head_dim);
  c.rotary_pairs = rotary / 2;
  facts.vocabulary = c.vocabulary;
  facts.context = read.integer_or("max_position_embeddings", 1, int64_t{1} << 31, 4096);
  facts.experts = static_cast<int>(c.experts);
  facts.top_k = static_cast<int>(c.top_k);
  if (const auto mask = read.ids("mask_token_id", c.vocabulary); !mask.empty())
    facts.mask = mask[0];
  facts.ends = read.ids("eos_token_id", c.vocabulary);
}

std::unique_ptr<nn::TokenModel> LladaRecipe::make(const nn::Weights& weights,
                                                  const nn::Portion& portion, nn::DType dtype,
                                                  int block) const {
  LladaConfig config = config_;
  if (facts_.block_causal) config.causal_block = block > 0 ? block : facts_.block;
  if (portion.shard.count == 1) return std::make_unique<Llada>(config, weights, portion, dtype);
  const nn::CutWeights mine(
      weights, [&](const std::string& name) { return shard_cut(config_, portion.shard, name); });
  return std::make_unique<Llada>(shard_of(config, portion.shard), mine, portion, dtype);
}

std::vector<std::pair<std::string, std::string>> LladaRecipe::sizes() const {
  const LladaConfig& c = config_;
  return {{"vocab_size", std::to_string(c.vocabulary)},
          {"hidden_size", std::to_string(c.hidden)},
          {"num_hidden_layers", std::to_string(c.layers())},
          {"num_attention_heads", std::to_string(c.heads)},
          {"num_key_value_heads", std::to_string(c.kv_heads)},
          {"head_dim", std::to_string(c.head_dim)},
          {"num_experts", std::to_string(c.experts)},
          {"num_experts_per_tok", std::to_string(c.top_k)},
          {"expert_width", std::to_string(c.expert_width)},
          {"shared_width", std::to_string(c.shared_width)},
          {"context", std::to_string(facts_.context)},
          {"router", c.sigmoid ? "sigmoid" : "softmax"},
          {"attention", facts_.block_causal ? fmt::format("block-causal, {} tokens", facts_.block)
                                            : "bidirectional"}};
}

}  // namespace tessera::models
