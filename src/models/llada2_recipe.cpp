#include "models/llada2_recipe.h"

#include "base/fail.h"
#include "models/token_config.h"

namespace tessera::models {

std::unique_ptr<TokenRecipe> llada2_recipe(const base::Json& config, const std::string& where) {
  const TokenConfig read(config, where);
  LladaConfig c;
  TokenFacts facts;
  read_common(read, c, facts);
  const int64_t layers = read.integer("num_hidden_layers", 1, 10000);
  const int64_t dense = read.integer_or("first_k_dense_replace", 0, layers, 0);
  c.sparse.assign(static_cast<size_t>(layers), true);
  for (int64_t l = 0; l < dense; ++l) c.sparse[static_cast<size_t>(l)] = false;
  if (dense > 0) c.dense_width = read.integer("intermediate_size", 1, 1 << 24);
  c.expert_width = read.integer("moe_intermediate_size", 1, 1 << 20);
  c.shared_width =
      read.integer_or("num_shared_experts", 0, 64, 0) *
      read.integer_or("moe_shared_expert_intermediate_size", 1, 1 << 20, c.expert_width);
  const std::string score = read.text_or("score_function", "sigmoid");
  if (score != "sigmoid" && score != "softmax")
    read.refuse("score_function", "\"sigmoid\" and \"softmax\"");
  c.sigmoid = score == "sigmoid";
  c.ranking_bias = c.sigmoid && read.flag("moe_router_enable_expert_bias", true);
  c.renormalise = read.flag("norm_topk_prob", true);
  c.groups = read.integer_or("n_group", 1, c.experts, 1);
  c.top_groups = read.integer_or("topk_group", 1, c.groups, c.groups);
  require(c.experts % c.groups == 0, ErrorCode::model,
          "{}: 'n_group' is {}, which does not divide 'num_experts' {}", where, c.groups,
          c.experts);
  c.qk_norm = read.flag("use_qk_norm", true);
  c.qkv_bias = read.flag("use_qkv_bias", false);
  c.out_bias = read.flag("use_bias", false);
  c.ling_names = true;
  facts.block_causal = true;
  facts.block = static_cast<int>(read.integer_or("block_length", 1, 1 << 16, 32));
  return std::make_unique<LladaRecipe>(std::move(c), std::move(facts));
}

}  // namespace tessera::models
