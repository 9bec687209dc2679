#include "models/llada_moe_recipe.h"

#include <algorithm>

#include "models/token_config.h"

namespace tessera::models {

std::unique_ptr<TokenRecipe> llada_moe_recipe(const base::Json& config, const std::string& where) {
  const TokenConfig read(config, where);
  LladaConfig c;
  TokenFacts facts;
  read_common(read, c, facts);
  c.sparse = read.flags("moe_layer_freq",
                        static_cast<size_t>(read.integer("num_hidden_layers", 1, 10000)));
  c.expert_width = read.integer("expert_intermediate_size", 1, 1 << 20);
  if (std::find(c.sparse.begin(), c.sparse.end(), false) != c.sparse.end())
    c.dense_width = read.integer("dense_intermediate_size", 1, 1 << 24);
  c.renormalise = read.flag("norm_topk_prob", false);
  c.qk_norm = read.flag("qk_layernorm", true);
  c.qkv_bias = c.out_bias = read.flag("attention_bias", false);
  if (read.has("shared_expert_intermediate_size"))
    read.refuse("shared_expert_intermediate_size", "null");
  if (read.has("clip_qkv")) read.refuse("clip_qkv", "null");
  if (read.flag("moe_router_enable_expert_bias", false))
    read.refuse("moe_router_enable_expert_bias", "false");
  if (read.text_or("moe_router_score_function", "softmax") != "softmax")
    read.refuse("moe_router_score_function", "\"softmax\"");
  if (read.has("router_num_group")) read.refuse("router_num_group", "null");
  return std::make_unique<LladaRecipe>(std::move(c), std::move(facts));
}

}  // namespace tessera::models
