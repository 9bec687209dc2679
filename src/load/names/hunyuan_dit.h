#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// HunyuanDiT with the names of Tencent.
inline const NameTable& hunyuan_dit() {
  static const NameTable table{
      .family = "HunyuanDiT",
      .types = {"HunyuanDiT2DModel"},
      .architectures = {},
      .marks = {"blocks.0.default_modulation.1.weight"},
      .unread = {},
      .rules = {
          {"x_embedder.proj.*", {"pos_embed.proj.*"}},
          {"t_embedder.mlp.0.*", {"time_extra_emb.timestep_embedder.linear_1.*"}},
          {"t_embedder.mlp.2.*", {"time_extra_emb.timestep_embedder.linear_2.*"}},
          {"extra_embedder.0.*", {"time_extra_emb.extra_embedder.linear_1.*"}},
          {"extra_embedder.2.*", {"time_extra_emb.extra_embedder.linear_2.*"}},
          {"pooler.positional_embedding", {"time_extra_emb.pooler.positional_embedding"}},
          {"pooler.T.*", {"time_extra_emb.pooler.T.*"}},
          // No released model has the second style.
          {"style_embedder.weight", {"time_extra_emb.style_embedder.weight", "-"}},
          {"mlp_t5.0.*", {"text_embedder.linear_1.*"}},
          {"mlp_t5.2.*", {"text_embedder.linear_2.*"}},
          {"blocks.N.attn1.Wqkv.*",
           {"blocks.N.attn1.to_q.*", "blocks.N.attn1.to_k.*", "blocks.N.attn1.to_v.*"}},
          {"blocks.N.attn2.q_proj.*", {"blocks.N.attn2.to_q.*"}},
          {"blocks.N.attn2.kv_proj.*", {"blocks.N.attn2.to_k.*", "blocks.N.attn2.to_v.*"}},
          {"blocks.N.T.q_norm.*", {"blocks.N.T.norm_q.*"}},
          {"blocks.N.T.k_norm.*", {"blocks.N.T.norm_k.*"}},
          {"blocks.N.T.out_proj.*", {"blocks.N.T.to_out.0.*"}},
          {"blocks.N.norm1.*", {"blocks.N.norm1.norm.*"}},
          {"blocks.N.norm2.*", {"blocks.N.norm3.*"}},
          {"blocks.N.norm3.*", {"blocks.N.norm2.*"}},
          {"blocks.N.default_modulation.1.*", {"blocks.N.norm1.linear.*"}},
          {"blocks.N.mlp.fc1.*", {"blocks.N.ff.net.0.proj.*"}},
          {"blocks.N.mlp.fc2.*", {"blocks.N.ff.net.2.*"}},
          {"final_layer.linear.*", {"proj_out.*"}},
          {"final_layer.adaLN_modulation.1.*", {"norm_out.linear.*"}, Layout::halves_swapped}}};
  return table;
}

}  // namespace tessera::load::names
