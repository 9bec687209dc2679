#include "models/llada_moe_spec.h"

#include <algorithm>

#include "base/fail.h"
#include "models/token_config.h"

namespace tessera::models {

namespace {

// The released code ignores the first two keys: the router is a softmax without renormalisation.
// The last key is for dense layers only.
constexpr const char* kInert[] = {"norm_topk_prob", "routed_scaling_factor",
                                  "dense_intermediate_size"};

const GuardedKey kGuarded[] = {
    {"shared_expert_intermediate_size", {}, "a shared expert"},
    {"clip_qkv", {}, "clipping of q, k and v"},
    {"moe_router_enable_expert_bias", {"false"}, "a router with a bias"},
    {"moe_router_score_function", {"\"softmax\""}, "another router than a softmax"},
    {"router_num_group", {"-2", "0", "1"}, "a limit of groups"},
    {"router_topk_group", {"-2", "0", "1"}, "a limit of groups"},
    {"quantization_config", {}, "quantised weights"}};

}  // namespace

LladaConfig parse_llada_moe_config(const base::Json& config, const std::string& where) {
  const TokenConfig reader(config, where);
  LladaConfig c;
  read_common(reader, {.rotary_part = 1, .context = 4096}, c);
  require(c.head_dim * c.heads == c.hidden, ErrorCode::model,
          "{}: {} heads of {} channels ('head_dim') are not 'hidden_size' {}", where, c.heads,
          c.head_dim, c.hidden);
  c.sparse = reader.flags("moe_layer_freq",
                          static_cast<size_t>(reader.integer("num_hidden_layers", 1, 10000)));
  c.expert_width = reader.integer("expert_intermediate_size", 1, 1 << 20);
  if (std::find(c.sparse.begin(), c.sparse.end(), false) != c.sparse.end())
    c.dense_width = reader.integer("dense_intermediate_size", 1, 1 << 24);
  c.qk_norm = reader.truth("qk_layernorm", false);
  c.qkv_bias = c.out_bias = reader.truth("attention_bias", false);
  reader.check_rest(kInert, kGuarded);
  return c;
}

TokenSpec llada_moe_spec(const Source& source) {
  return spec_of(parse_llada_moe_config(source.config, source.where));
}

}  // namespace tessera::models
