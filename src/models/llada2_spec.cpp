#include "models/llada2_spec.h"

#include "base/fail.h"
#include "models/token_config.h"

namespace tessera::models {

namespace {

// Keys that the released code ignores, or uses in dense layers only; and the trainer's
// implementation of experts (DMax).
constexpr const char* kInert[] = {"sliding_window", "max_window_layers", "mtp_loss_scaling_factor",
                                  "router_dtype",   "intermediate_size", "_moe_implementation"};

// The gate has a single form; keys of earlier models may state others.
const GuardedKey kGuarded[] = {
    {"score_function", {"\"sigmoid\""}, "another router than a sigmoid's"},
    {"norm_topk_prob", {"true"}, "a router that does not normalise"},
    {"moe_router_enable_expert_bias", {"true"}, "a router without a ranking bias"},
    {"use_rmsnorm", {"true"}, "another norm than RMS"},
    {"norm_head", {"false"}, "a normalised head"},
    {"norm_softmax", {"false"}, "a normalised softmax"},
    {"use_sliding_window", {"false"}, "a sliding window of attention"},
    {"using_split_qkv_in_self_attention", {"false"}, "attention with q, k and v apart"},
    {"num_nextn_predict_layers", {"0"}, "prediction of further tokens"},
    {"block_size", {}, "block routing without 'expert_capacity'"},
    {"use_linear_attention", {"false"}, "linear attention"},
    {"linear_attention_layers", {"[]"}, "linear attention"},
    {"image_token_offset", {}, "a vocabulary with pieces of images (LLaDA2.0-Uni)"},
    {"quantization_config", {}, "quantised weights"}};

// LLaDA2.2: tokens of a block share experts, and the gate has no groups.
void read_block_routing(const TokenConfig& reader, LladaConfig& c) {
  if (!reader.has("expert_capacity")) return;
  c.routing = {.method = nn::SelectionRule::Method::block,
               .k = static_cast<int>(reader.integer("expert_capacity", 1, c.experts)),
               .block = static_cast<int>(reader.integer("block_size", 1, 1 << 16))};
  if (!c.renormalise) c.routing.weights = nn::SelectionRule::Weights::a;  // scores are weights
  require(
      c.causal_block % c.routing.block == 0, ErrorCode::model,
      "{}: 'block_size' is {}, of which the {} tokens of a block ('block_length') are no multiple",
      reader.where(), c.routing.block, c.causal_block);
  c.groups = c.top_groups = 1;
}

// LLaDA2.2: tokens with which the model edits the length of a block.
void read_length_edits(const TokenConfig& reader, LladaConfig& c) {
  const auto single_id = [&](const char* key) {
    const auto ids = reader.ids(key, c.vocabulary);
    require(ids.size() <= 1, ErrorCode::model, "{}: '{}' has {} ids; expected one", reader.where(),
            key, ids.size());
    return ids.empty() ? -1 : ids[0];
  };
  c.remove = single_id("delete_token_id");
  c.split = single_id("split_token_id");
  require((c.remove < 0) == (c.split < 0), ErrorCode::model,
          "{}: 'delete_token_id' and 'split_token_id' go together; one of them is missing",
          reader.where());
  require(c.remove < 0 || (c.remove != c.split && c.mask != c.remove && c.mask != c.split),
          ErrorCode::model,
          "{}: 'delete_token_id' {} and 'split_token_id' {}: expected two tokens that are not the "
          "mask",
          reader.where(), c.remove, c.split);
}

}  // namespace

LladaConfig parse_llada2_config(const base::Json& config, const std::string& where) {
  const TokenConfig reader(config, where);
  LladaConfig c;
  read_common(reader, {.rotary_part = 0.5, .context = 16384}, c);
  const int64_t layers = reader.integer("num_hidden_layers", 1, 10000);
  const int64_t dense = reader.integer("first_k_dense_replace", 0, 0, layers);
  c.sparse.assign(static_cast<size_t>(layers), true);
  for (int64_t l = 0; l < dense; ++l) c.sparse[static_cast<size_t>(l)] = false;
  if (dense > 0) c.dense_width = reader.integer("intermediate_size", 1, 1 << 24);
  c.expert_width = reader.integer("moe_intermediate_size", 1, 1 << 20);
  c.shared_width =
      reader.integer("num_shared_experts", 0, 0, 64) *
      reader.integer("moe_shared_expert_intermediate_size", c.expert_width, 1, 1 << 20);
  c.sigmoid = c.ranking_bias = true;
  c.renormalise = c.top_k > 1;  // the released gate does not normalise a single weight
  c.scale = reader.number("routed_scaling_factor", 2.5, 0, 1e6);
  c.groups = reader.integer("n_group", 8, 1, c.experts);
  c.top_groups = reader.integer("topk_group", 4, 1, c.groups);
  require(c.experts % c.groups == 0 && c.top_groups <= c.groups, ErrorCode::model,
          "{}: {} of {} groups ('topk_group', 'n_group') of {} experts ('num_experts') do not fit; "
          "expected groups of one size, and no more open ones than there are",
          where, c.top_groups, c.groups, c.experts);
  c.qk_norm = reader.truth("use_qk_norm", true);
  c.qkv_bias = reader.truth("use_qkv_bias", false);
  c.out_bias = reader.truth("use_bias", true);
  c.ling_names = true;
  c.causal_block = static_cast<int>(reader.integer("block_length", 32, 1, 1 << 16));
  read_block_routing(reader, c);
  read_length_edits(reader, c);
  reader.check_rest(kInert, kGuarded);
  return c;
}

TokenSpec llada2_spec(const Source& source) {
  TokenSpec spec = spec_of(parse_llada2_config(source.config, source.where));
  if (spec.remove >= 0) spec.decode = "edit:0.5,0";  // default of the model's generate()
  return spec;
}

}  // namespace tessera::models
