#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// Qwen3 with the names of llama.cpp.
inline const NameTable& qwen3() {
  static const NameTable table{
      .family = "Qwen3",
      .types = {"Qwen3Model", "Qwen3ForCausalLM"},
      .architectures = {"qwen3"},
      .marks = {"blk.0.attn_q_norm.weight"},
      .unread = {"output.weight", "rope_freqs.weight"},
      .rules = {{"token_embd.weight", {"model.embed_tokens.weight"}},
                {"blk.N.attn_norm.weight", {"model.layers.N.input_layernorm.weight"}},
                {"blk.N.attn_q.weight", {"model.layers.N.self_attn.q_proj.weight"}},
                {"blk.N.attn_k.weight", {"model.layers.N.self_attn.k_proj.weight"}},
                {"blk.N.attn_v.weight", {"model.layers.N.self_attn.v_proj.weight"}},
                {"blk.N.attn_output.weight", {"model.layers.N.self_attn.o_proj.weight"}},
                {"blk.N.attn_q_norm.weight", {"model.layers.N.self_attn.q_norm.weight"}},
                {"blk.N.attn_k_norm.weight", {"model.layers.N.self_attn.k_norm.weight"}},
                {"blk.N.ffn_norm.weight", {"model.layers.N.post_attention_layernorm.weight"}},
                {"blk.N.ffn_gate.weight", {"model.layers.N.mlp.gate_proj.weight"}},
                {"blk.N.ffn_up.weight", {"model.layers.N.mlp.up_proj.weight"}},
                {"blk.N.ffn_down.weight", {"model.layers.N.mlp.down_proj.weight"}},
                {"output_norm.weight", {"model.norm.weight"}}}};
  return table;
}

}  // namespace tessera::load::names
