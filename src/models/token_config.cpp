#include "models/token_config.h"

#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "base/printable.h"
#include "models/pipeline_spec.h"
#include "nn/sharded_weights.h"

namespace tessera::models {
namespace {

using base::Json;

constexpr int64_t kMost = int64_t{1} << 24;  // upper bound of sizes in a configuration

// Keys in every model saved by transformers: names, dtypes, training, caches, and options of
// generate(). None changes a forward pass.
constexpr const char* kInert[] = {"architectures",
                                  "auto_map",
                                  "model_type",
                                  "torch_dtype",
                                  "dtype",
                                  "transformers_version",
                                  "_name_or_path",
                                  "_commit_hash",
                                  "_attn_implementation",
                                  "_attn_implementation_autoset",
                                  "attn_implementation",
                                  "use_cache",
                                  "return_dict",
                                  "output_attentions",
                                  "output_hidden_states",
                                  "output_router_logits",
                                  "router_aux_loss_coef",
                                  "initializer_range",
                                  "attention_dropout",
                                  "embedding_dropout",
                                  "output_dropout",
                                  "gradient_checkpointing",
                                  "torchscript",
                                  "use_bfloat16",
                                  "bos_token_id",
                                  "pad_token_id",
                                  "sep_token_id",
                                  "decoder_start_token_id",
                                  "tokenizer_class",
                                  "prefix",
                                  "problem_type",
                                  "id2label",
                                  "label2id",
                                  "task_specific_params",
                                  "finetuning_task",
                                  "is_decoder",
                                  "is_encoder_decoder",
                                  "add_cross_attention",
                                  "cross_attention_hidden_size",
                                  "tie_encoder_decoder",
                                  "chunk_size_feed_forward",
                                  "pruned_heads",
                                  "tf_legacy_loss",
                                  "max_length",
                                  "min_length",
                                  "do_sample",
                                  "early_stopping",
                                  "num_beams",
                                  "num_beam_groups",
                                  "diversity_penalty",
                                  "temperature",
                                  "top_k",
                                  "top_p",
                                  "typical_p",
                                  "repetition_penalty",
                                  "length_penalty",
                                  "no_repeat_ngram_size",
                                  "encoder_no_repeat_ngram_size",
                                  "bad_words_ids",
                                  "num_return_sequences",
                                  "output_scores",
                                  "return_dict_in_generate",
                                  "forced_bos_token_id",
                                  "forced_eos_token_id",
                                  "remove_invalid_values",
                                  "exponential_decay_length_penalty",
                                  "suppress_tokens",
                                  "begin_suppress_tokens"};

bool is_whole(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>() <= uint64_t(high) && int64_t(value.get<uint64_t>()) >= low;
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

}  // namespace

const Json& TokenConfig::at(const char* key) const {
  const Json* value = find(key);
  require(value != nullptr, ErrorCode::model,
          "{}: '{}' is missing; use the config.json of the model", where(), key);
  return *value;
}

int64_t TokenConfig::integer(const char* key, int64_t low, int64_t high) const {
  (void)at(key);
  return integer(key, low, low, high);
}

bool TokenConfig::truth(const char* key, bool missing) const {
  return ConfigReader::flag(key, missing && !config().contains(key));
}

std::string TokenConfig::text(const char* key, const std::string& missing) const {
  const Json* value = find(key);
  if (!value) return missing;
  require(value->is_string(), ErrorCode::model, "{}: '{}' is {}; expected text", where(), key,
          shown(*value));
  return value->get<std::string>();
}

std::vector<int32_t> TokenConfig::ids(const char* key, int64_t vocabulary) const {
  if (!has(key)) return {};
  const Json list = at(key).is_array() ? at(key) : Json::array({at(key)});
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    require(is_whole(id, 0, vocabulary - 1), ErrorCode::model,
            "{}: '{}' is {}; expected token ids from 0 to {}", where(), key, shown(at(key)),
            vocabulary - 1);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<bool> TokenConfig::flags(const char* key, size_t count) const {
  if (!has(key)) return std::vector<bool>(count, true);
  const Json& value = at(key);
  auto bit = [&](const Json& item) {
    require(is_whole(item, 0, 1), ErrorCode::model, "{}: '{}' holds {}; expected 0 or 1", where(),
            key, shown(item));
    return item.get<int>() == 1;
  };
  if (!value.is_array()) return std::vector<bool>(count, bit(value));
  require(value.size() == count, ErrorCode::model, "{}: '{}' has {} entries for {} layers", where(),
          key, value.size(), count);
  std::vector<bool> bits;
  for (const Json& item : value) bits.push_back(bit(item));
  return bits;
}

void TokenConfig::refuse_value(const char* key, const std::string& expected) const {
  const Json* value = find(key);
  fail(ErrorCode::model, "{}: '{}' is {}, which is not supported; supported is {}", where(), key,
       value ? shown(*value).str() : "missing", expected);
}

void TokenConfig::check_rest(std::span<const char* const> inert,
                             std::span<const GuardedKey> guarded) const {
  for (const auto& item : config().items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    const auto is_key = [&](const char* name) { return key == name; };
    if (value.is_null() || was_read(key) || std::ranges::any_of(kInert, is_key) ||
        std::ranges::any_of(inert, is_key))
      continue;
    const auto guard = std::ranges::find_if(guarded, [&](const auto& g) { return key == g.key; });
    require(guard != guarded.end(), ErrorCode::model,
            "{}: this build does not know the key {} ({}), nor what it changes; remove it if the "
            "model computes the same without it",
            where(), base::printable(key), shown(value));
    require(std::ranges::any_of(guard->inert,
                                [&](const char* text) { return value == Json::parse(text); }),
            ErrorCode::model, "{}: '{}' is {}: {} is not supported; supported is {}", where(), key,
            shown(value), guard->what,
            guard->inert.empty() ? "null" : fmt::format("{}", fmt::join(guard->inert, " or ")));
  }
}

namespace {

// Reads rotary parameters from plain keys (rope_theta, partial_rotary_factor) or from an object
// (rope_parameters in transformers 5; rope_scaling in older files). Both must agree.
void read_rotary(const TokenConfig& reader, double part, LladaConfig& c) {
  std::optional<double> theta;
  std::optional<double> share;
  const auto take = [&](const TokenConfig& from) {
    const auto read_number = [&](const char* key, double low, double high,
                                 std::optional<double>& into) {
      if (!from.has(key)) return;
      const double value = from.number(key, 0, low, high);
      require(!into || *into == value, ErrorCode::model,
              "{}: '{}' is {} in one place and {} in another", reader.where(), key, *into, value);
      into = value;
    };
    read_number("rope_theta", 1, 1e12, theta);
    read_number("partial_rotary_factor", 0, 1, share);
  };
  take(reader);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!reader.has(key)) continue;
    const Json& object = reader.at(key);
    require(object.is_object(), ErrorCode::model, "{}: '{}' is {}; expected an object or null",
            reader.where(), key, base::ConfigReader::shown(object));
    const TokenConfig inner(object, fmt::format("{}: '{}'", reader.where(), key));
    for (const char* type : {"rope_type", "type"})
      if (inner.text(type, "default") != "default") inner.refuse_value(type, "\"default\"");
    take(inner);
    inner.check_rest({}, {});
  }
  require(theta.has_value(), ErrorCode::model,
          "{}: 'rope_theta' is missing; use the config.json of the model", reader.where());
  c.rope_theta = *theta;
  const auto rotary = static_cast<int64_t>(share.value_or(part) * double(c.head_dim));
  const int64_t rotary_dim = reader.integer("rotary_dim", rotary, 2, c.head_dim);
  require(rotary_dim == rotary, ErrorCode::model,
          "{}: 'rotary_dim' is {}, but 'partial_rotary_factor' {} of {} channels is {}",
          reader.where(), rotary_dim, share.value_or(part), c.head_dim, rotary);
  require(rotary >= 2 && rotary % 2 == 0, ErrorCode::model,
          "{}: {} rotary channels of {}; expected an even number", reader.where(), rotary,
          c.head_dim);
  c.rotary_pairs = rotary / 2;
}

}  // namespace

void read_common(const TokenConfig& reader, const TokenDefaults& defaults, LladaConfig& c) {
  c.vocabulary = reader.integer("vocab_size", 2, kMost);
  c.hidden = reader.integer("hidden_size", 8, kMost);
  c.heads = reader.integer("num_attention_heads", 1, 10000);
  c.kv_heads = reader.integer("num_key_value_heads", c.heads, 1, c.heads);
  c.head_dim = reader.integer("head_dim", c.hidden / c.heads, 8, 512);
  c.eps = reader.number("rms_norm_eps", 1e-5, 0, 1);
  c.tied = reader.truth("tie_word_embeddings", false);
  c.experts = reader.integer("num_experts", 1, 1 << 16);
  c.top_k = reader.integer("num_experts_per_tok", 1, c.experts);
  if (reader.text("hidden_act", "silu") != "silu") reader.refuse_value("hidden_act", "\"silu\"");
  require(c.heads % c.kv_heads == 0 && c.head_dim % 8 == 0, ErrorCode::model,
          "{}: {} heads over {} key heads of {} channels do not fit; expected a multiple, and "
          "channels in eights",
          reader.where(), c.heads, c.kv_heads, c.head_dim);
  read_rotary(reader, defaults.rotary_part, c);
  c.context = reader.integer("max_position_embeddings", defaults.context, 1, int64_t{1} << 31);
  if (const auto mask = reader.ids("mask_token_id", c.vocabulary); !mask.empty()) c.mask = mask[0];
  c.ends = reader.ids("eos_token_id", c.vocabulary);
}

TokenSpec spec_of(const LladaConfig& c) {
  TokenSpec spec;
  spec.blocks = c.layers();
  spec.make = [c](const nn::Weights& weights, const nn::Portion& portion, nn::DType dtype,
                  int block) {
    LladaConfig config = c;
    if (c.causal_block > 0 && block > 0) config.causal_block = block;
    return std::make_unique<Llada>(config, nn::ShardedWeights(weights, portion.shard), portion,
                                   dtype);
  };
  spec.expert = [c](const nn::Weights& weights, int64_t block, int64_t expert, nn::DType dtype) {
    return load_routed_expert(c, weights, block, expert, dtype);
  };
  spec.vocabulary = c.vocabulary;
  spec.context = c.context;
  spec.mask = c.mask;
  spec.ends = c.ends;
  spec.remove = c.remove;
  spec.split = c.split;
  spec.experts = static_cast<int>(c.experts);
  spec.top_k = static_cast<int>(c.top_k);
  spec.block_causal = c.causal_block > 0;
  if (spec.block_causal) spec.block = c.causal_block;
  spec.routing = c.routing;
  spec.facts = facts_of({{"vocab_size", c.vocabulary},
                         {"hidden_size", c.hidden},
                         {"num_hidden_layers", c.layers()},
                         {"num_attention_heads", c.heads},
                         {"num_key_value_heads", c.kv_heads},
                         {"head_dim", c.head_dim},
                         {"num_experts", c.experts},
                         {"num_experts_per_tok", c.top_k},
                         {"expert_width", c.expert_width},
                         {"shared_width", c.shared_width},
                         {"context", c.context}});
  if (c.remove >= 0)
    spec.facts.emplace_back("edits of length",
                            fmt::format("delete {}, split {}", c.remove, c.split));
  spec.facts.emplace_back("router", c.sigmoid ? "sigmoid" : "softmax");
  spec.facts.emplace_back("attention", spec.block_causal
                                           ? fmt::format("block-causal, {} tokens", spec.block)
                                           : "bidirectional");
  if (c.routing.block > 0)
    spec.facts.emplace_back("experts shared",
                            fmt::format("{} by {} tokens", c.routing.k, c.routing.block));
  return spec;
}

}  // namespace tessera::models
