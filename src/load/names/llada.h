#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// LLaDA-MoE with the names of llama.cpp.
inline const NameTable& llada_moe() {
  static const NameTable table{
      .family = "LLaDA-MoE",
      .types = {"LLaDAMoEModelLM", "llada"},
      .architectures = {"llada-moe"},
      .marks = {"blk.0.ffn_gate_exps.weight"},
      .unread = {"rope_freqs.weight"},
      .rules = {{"token_embd.weight", {"model.embed_tokens.weight"}},
                {"output_norm.weight", {"model.norm.weight"}},
                {"output.weight", {"lm_head.weight"}},
                {"blk.N.attn_norm.weight", {"model.layers.N.input_layernorm.weight"}},
                {"blk.N.attn_q.*", {"model.layers.N.self_attn.q_proj.*"}},
                {"blk.N.attn_k.*", {"model.layers.N.self_attn.k_proj.*"}},
                {"blk.N.attn_v.*", {"model.layers.N.self_attn.v_proj.*"}},
                {"blk.N.attn_output.*", {"model.layers.N.self_attn.o_proj.*"}},
                {"blk.N.attn_q_norm.weight", {"model.layers.N.self_attn.q_norm.weight"}},
                {"blk.N.attn_k_norm.weight", {"model.layers.N.self_attn.k_norm.weight"}},
                {"blk.N.ffn_norm.weight", {"model.layers.N.post_attention_layernorm.weight"}},
                {"blk.N.ffn_gate_inp.weight", {"model.layers.N.mlp.gate.weight"}},
                {"blk.N.ffn_gate_exps.weight",
                 {"model.layers.N.mlp.experts.E.gate_proj.weight"},
                 Layout::experts},
                {"blk.N.ffn_up_exps.weight",
                 {"model.layers.N.mlp.experts.E.up_proj.weight"},
                 Layout::experts},
                {"blk.N.ffn_down_exps.weight",
                 {"model.layers.N.mlp.experts.E.down_proj.weight"},
                 Layout::experts},
                {"blk.N.ffn_gate.weight", {"model.layers.N.mlp.gate_proj.weight"}},
                {"blk.N.ffn_up.weight", {"model.layers.N.mlp.up_proj.weight"}},
                {"blk.N.ffn_down.weight", {"model.layers.N.mlp.down_proj.weight"}}}};
  return table;
}

/// LLaDA2 with converter names after llama.cpp's Bailing MoE 2: fused queries, keys and values.
inline const NameTable& llada2() {
  static const NameTable table{
      .family = "LLaDA2",
      .types = {"LLaDA2MoeModelLM", "llada2_moe"},
      .architectures = {"llada2", "llada2-moe", "llada2_moe", "bailingmoe2"},
      .marks = {"blk.1.exp_probs_b.bias", "blk.1.exp_probs_b"},
      .unread = {"rope_freqs.weight"},
      .rules = {
          {"token_embd.weight", {"model.word_embeddings.weight"}},
          {"output_norm.weight", {"model.norm.weight"}},
          {"output.weight", {"lm_head.weight"}},
          {"blk.N.attn_norm.weight", {"model.layers.N.input_layernorm.weight"}},
          {"blk.N.attn_qkv.*", {"model.layers.N.attention.query_key_value.*"}},
          {"blk.N.attn_output.*", {"model.layers.N.attention.dense.*"}},
          {"blk.N.attn_q_norm.weight", {"model.layers.N.attention.query_layernorm.weight"}},
          {"blk.N.attn_k_norm.weight", {"model.layers.N.attention.key_layernorm.weight"}},
          {"blk.N.ffn_norm.weight", {"model.layers.N.post_attention_layernorm.weight"}},
          {"blk.N.ffn_gate_inp.weight", {"model.layers.N.mlp.gate.weight"}},
          {"blk.N.exp_probs_b.bias", {"model.layers.N.mlp.gate.expert_bias"}},
          {"blk.N.exp_probs_b", {"model.layers.N.mlp.gate.expert_bias"}},
          {"blk.N.ffn_gate_exps.weight",
           {"model.layers.N.mlp.experts.E.gate_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_up_exps.weight",
           {"model.layers.N.mlp.experts.E.up_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_down_exps.weight",
           {"model.layers.N.mlp.experts.E.down_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_gate_shexp.weight", {"model.layers.N.mlp.shared_experts.gate_proj.weight"}},
          {"blk.N.ffn_up_shexp.weight", {"model.layers.N.mlp.shared_experts.up_proj.weight"}},
          {"blk.N.ffn_down_shexp.weight", {"model.layers.N.mlp.shared_experts.down_proj.weight"}},
          {"blk.N.ffn_gate.weight", {"model.layers.N.mlp.gate_proj.weight"}},
          {"blk.N.ffn_up.weight", {"model.layers.N.mlp.up_proj.weight"}},
          {"blk.N.ffn_down.weight", {"model.layers.N.mlp.down_proj.weight"}}}};
  return table;
}

}  // namespace tessera::load::names
