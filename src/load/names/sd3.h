#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// Stable Diffusion 3 and 3.5 with the names of Stability AI.
inline const NameTable& sd3() {
  static const NameTable table{
      .family = "Stable Diffusion 3",
      .types = {"SD3Transformer2DModel"},
      .architectures = {"sd3"},
      .marks = {"joint_blocks.0.x_block.attn.qkv.weight"},
      .unread = {},
      .rules = {
          {"pos_embed", {"pos_embed.pos_embed"}},
          {"x_embedder.proj.*", {"pos_embed.proj.*"}},
          {"t_embedder.mlp.0.*", {"time_text_embed.timestep_embedder.linear_1.*"}},
          {"t_embedder.mlp.2.*", {"time_text_embed.timestep_embedder.linear_2.*"}},
          {"y_embedder.mlp.0.*", {"time_text_embed.text_embedder.linear_1.*"}},
          {"y_embedder.mlp.2.*", {"time_text_embed.text_embedder.linear_2.*"}},
          {"joint_blocks.N.x_block.attn.qkv.*",
           {"transformer_blocks.N.attn.to_q.*", "transformer_blocks.N.attn.to_k.*",
            "transformer_blocks.N.attn.to_v.*"}},
          {"joint_blocks.N.x_block.attn.proj.*", {"transformer_blocks.N.attn.to_out.0.*"}},
          {"joint_blocks.N.x_block.attn.ln_q.*", {"transformer_blocks.N.attn.norm_q.*"}},
          {"joint_blocks.N.x_block.attn.ln_k.*", {"transformer_blocks.N.attn.norm_k.*"}},
          {"joint_blocks.N.x_block.attn2.qkv.*",
           {"transformer_blocks.N.attn2.to_q.*", "transformer_blocks.N.attn2.to_k.*",
            "transformer_blocks.N.attn2.to_v.*"}},
          {"joint_blocks.N.x_block.attn2.proj.*", {"transformer_blocks.N.attn2.to_out.0.*"}},
          {"joint_blocks.N.x_block.attn2.ln_q.*", {"transformer_blocks.N.attn2.norm_q.*"}},
          {"joint_blocks.N.x_block.attn2.ln_k.*", {"transformer_blocks.N.attn2.norm_k.*"}},
          {"joint_blocks.N.x_block.mlp.fc1.*", {"transformer_blocks.N.ff.net.0.proj.*"}},
          {"joint_blocks.N.x_block.mlp.fc2.*", {"transformer_blocks.N.ff.net.2.*"}},
          {"joint_blocks.N.x_block.adaLN_modulation.1.*", {"transformer_blocks.N.norm1.linear.*"}},
          {"joint_blocks.N.context_block.attn.qkv.*",
           {"transformer_blocks.N.attn.add_q_proj.*", "transformer_blocks.N.attn.add_k_proj.*",
            "transformer_blocks.N.attn.add_v_proj.*"}},
          {"joint_blocks.N.context_block.attn.proj.*", {"transformer_blocks.N.attn.to_add_out.*"}},
          {"joint_blocks.N.context_block.attn.ln_q.*",
           {"transformer_blocks.N.attn.norm_added_q.*"}},
          {"joint_blocks.N.context_block.attn.ln_k.*",
           {"transformer_blocks.N.attn.norm_added_k.*"}},
          {"joint_blocks.N.context_block.mlp.fc1.*",
           {"transformer_blocks.N.ff_context.net.0.proj.*"}},
          {"joint_blocks.N.context_block.mlp.fc2.*", {"transformer_blocks.N.ff_context.net.2.*"}},
          // In the last block the text is only read: two parts, in the order of the final layer.
          {"joint_blocks.L.context_block.adaLN_modulation.1.*",
           {"transformer_blocks.L.norm1_context.linear.*"},
           Layout::halves_swapped},
          {"joint_blocks.N.context_block.adaLN_modulation.1.*",
           {"transformer_blocks.N.norm1_context.linear.*"}},
          {"final_layer.linear.*", {"proj_out.*"}},
          {"final_layer.adaLN_modulation.1.*", {"norm_out.linear.*"}, Layout::halves_swapped}}};
  return table;
}

}  // namespace tessera::load::names
