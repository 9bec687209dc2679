#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// DiffusionGemma with tied stacks, with the names of llama.cpp.
inline const NameTable& diffusion_gemma() {
  static const NameTable table{
      .family = "DiffusionGemma",
      .types = {"DiffusionGemmaForBlockDiffusion", "diffusion_gemma"},
      .architectures = {"diffusion-gemma"},
      .marks = {"self_cond_gate.weight", "blk.0.enc_layer_output_scale.weight"},
      .unread = {"rope_freqs.weight"},
      .rules = {
          {"token_embd.weight", {"model.decoder.embed_tokens.weight"}},
          {"output_norm.weight", {"model.decoder.norm.weight"}},
          {"output.weight", {"lm_head.weight"}},
          {"self_cond_pre_norm.weight", {"model.decoder.self_conditioning.pre_norm.weight"}},
          {"self_cond_gate.weight", {"model.decoder.self_conditioning.gate_proj.weight"}},
          {"self_cond_up.weight", {"model.decoder.self_conditioning.up_proj.weight"}},
          {"self_cond_down.weight", {"model.decoder.self_conditioning.down_proj.weight"}},
          {"blk.N.layer_output_scale.weight", {"model.decoder.layers.N.layer_scalar"}},
          {"blk.N.enc_layer_output_scale.weight",
           {"model.encoder.language_model.layers.N.layer_scalar"}},
          {"blk.N.attn_norm.weight", {"model.decoder.layers.N.input_layernorm.weight"}},
          {"blk.N.post_attention_norm.weight",
           {"model.decoder.layers.N.post_attention_layernorm.weight"}},
          {"blk.N.ffn_norm.weight", {"model.decoder.layers.N.pre_feedforward_layernorm.weight"}},
          {"blk.N.post_ffw_norm_1.weight",
           {"model.decoder.layers.N.post_feedforward_layernorm_1.weight"}},
          {"blk.N.pre_ffw_norm_2.weight",
           {"model.decoder.layers.N.pre_feedforward_layernorm_2.weight"}},
          {"blk.N.post_ffw_norm_2.weight",
           {"model.decoder.layers.N.post_feedforward_layernorm_2.weight"}},
          {"blk.N.post_ffw_norm.weight",
           {"model.decoder.layers.N.post_feedforward_layernorm.weight"}},
          {"blk.N.attn_q.*", {"model.decoder.layers.N.self_attn.q_proj.*"}},
          {"blk.N.attn_k.*", {"model.decoder.layers.N.self_attn.k_proj.*"}},
          {"blk.N.attn_v.*", {"model.decoder.layers.N.self_attn.v_proj.*"}},
          {"blk.N.attn_output.*", {"model.decoder.layers.N.self_attn.o_proj.*"}},
          {"blk.N.attn_q_norm.weight", {"model.decoder.layers.N.self_attn.q_norm.weight"}},
          {"blk.N.attn_k_norm.weight", {"model.decoder.layers.N.self_attn.k_norm.weight"}},
          {"blk.N.ffn_gate.weight", {"model.decoder.layers.N.mlp.gate_proj.weight"}},
          {"blk.N.ffn_up.weight", {"model.decoder.layers.N.mlp.up_proj.weight"}},
          {"blk.N.ffn_down.weight", {"model.decoder.layers.N.mlp.down_proj.weight"}},
          {"blk.N.ffn_gate_inp.weight", {"model.decoder.layers.N.router.proj.weight"}},
          {"blk.N.ffn_gate_inp.scale", {"model.decoder.layers.N.router.scale"}},
          {"blk.N.ffn_down_exps.scale", {"model.decoder.layers.N.router.per_expert_scale"}},
          {"blk.N.ffn_gate_up_exps.weight",
           {"model.decoder.layers.N.experts.E.gate_proj.weight",
            "model.decoder.layers.N.experts.E.up_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_gate_exps.weight",
           {"model.decoder.layers.N.experts.E.gate_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_up_exps.weight",
           {"model.decoder.layers.N.experts.E.up_proj.weight"},
           Layout::experts},
          {"blk.N.ffn_down_exps.weight",
           {"model.decoder.layers.N.experts.E.down_proj.weight"},
           Layout::experts}}};
  return table;
}

}  // namespace tessera::load::names
