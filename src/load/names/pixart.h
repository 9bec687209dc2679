#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// PixArt-alpha and PixArt-Sigma with the names of their authors.
inline const NameTable& pixart() {
  static const NameTable table{
      .family = "PixArt",
      .types = {"PixArtTransformer2DModel", "Transformer2DModel"},
      .architectures = {},
      .marks = {"y_embedder.y_proj.fc1.weight"},
      .unread = {"y_embedder.y_embedding", "pos_embed"},
      .rules = {{"x_embedder.proj.*", {"pos_embed.proj.*"}},
                {"y_embedder.y_proj.fc1.*", {"caption_projection.linear_1.*"}},
                {"y_embedder.y_proj.fc2.*", {"caption_projection.linear_2.*"}},
                {"t_embedder.mlp.0.*", {"adaln_single.emb.timestep_embedder.linear_1.*"}},
                {"t_embedder.mlp.2.*", {"adaln_single.emb.timestep_embedder.linear_2.*"}},
                {"csize_embedder.mlp.0.*", {"adaln_single.emb.resolution_embedder.linear_1.*"}},
                {"csize_embedder.mlp.2.*", {"adaln_single.emb.resolution_embedder.linear_2.*"}},
                {"ar_embedder.mlp.0.*", {"adaln_single.emb.aspect_ratio_embedder.linear_1.*"}},
                {"ar_embedder.mlp.2.*", {"adaln_single.emb.aspect_ratio_embedder.linear_2.*"}},
                {"t_block.1.*", {"adaln_single.linear.*"}},
                {"blocks.N.scale_shift_table", {"transformer_blocks.N.scale_shift_table"}},
                {"blocks.N.attn.qkv.*",
                 {"transformer_blocks.N.attn1.to_q.*", "transformer_blocks.N.attn1.to_k.*",
                  "transformer_blocks.N.attn1.to_v.*"}},
                {"blocks.N.attn.proj.*", {"transformer_blocks.N.attn1.to_out.0.*"}},
                {"blocks.N.mlp.fc1.*", {"transformer_blocks.N.ff.net.0.proj.*"}},
                {"blocks.N.mlp.fc2.*", {"transformer_blocks.N.ff.net.2.*"}},
                {"blocks.N.cross_attn.q_linear.*", {"transformer_blocks.N.attn2.to_q.*"}},
                {"blocks.N.cross_attn.kv_linear.*",
                 {"transformer_blocks.N.attn2.to_k.*", "transformer_blocks.N.attn2.to_v.*"}},
                {"blocks.N.cross_attn.proj.*", {"transformer_blocks.N.attn2.to_out.0.*"}},
                {"final_layer.linear.*", {"proj_out.*"}},
                {"final_layer.scale_shift_table", {"scale_shift_table"}}}};
  return table;
}

}  // namespace tessera::load::names
