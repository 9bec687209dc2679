#pragma once

#include "load/names/flux_norms.h"

namespace tessera::load::names {

/// FLUX.1 with the names of Black Forest Labs.
inline const NameTable& flux() {
  static const NameTable table = with_flux_norms(
      {.family = "FLUX.1",
       .types = {"FluxTransformer2DModel"},
       .architectures = {"flux"},
       .marks = {"double_blocks.0.img_mod.lin.weight", "single_blocks.0.modulation.lin.weight"},
       .unread = {},
       .rules = {
           {"img_in.*", {"x_embedder.*"}},
           {"txt_in.*", {"context_embedder.*"}},
           {"time_in.in_layer.*", {"time_text_embed.timestep_embedder.linear_1.*"}},
           {"time_in.out_layer.*", {"time_text_embed.timestep_embedder.linear_2.*"}},
           {"vector_in.in_layer.*", {"time_text_embed.text_embedder.linear_1.*"}},
           {"vector_in.out_layer.*", {"time_text_embed.text_embedder.linear_2.*"}},
           {"guidance_in.in_layer.*", {"time_text_embed.guidance_embedder.linear_1.*"}},
           {"guidance_in.out_layer.*", {"time_text_embed.guidance_embedder.linear_2.*"}},
           {"double_blocks.N.img_mod.lin.*", {"transformer_blocks.N.norm1.linear.*"}},
           {"double_blocks.N.txt_mod.lin.*", {"transformer_blocks.N.norm1_context.linear.*"}},
           {"double_blocks.N.img_attn.qkv.*",
            {"transformer_blocks.N.attn.to_q.*", "transformer_blocks.N.attn.to_k.*",
             "transformer_blocks.N.attn.to_v.*"}},
           {"double_blocks.N.txt_attn.qkv.*",
            {"transformer_blocks.N.attn.add_q_proj.*", "transformer_blocks.N.attn.add_k_proj.*",
             "transformer_blocks.N.attn.add_v_proj.*"}},
           {"double_blocks.N.img_attn.proj.*", {"transformer_blocks.N.attn.to_out.0.*"}},
           {"double_blocks.N.txt_attn.proj.*", {"transformer_blocks.N.attn.to_add_out.*"}},
           {"double_blocks.N.img_mlp.0.*", {"transformer_blocks.N.ff.net.0.proj.*"}},
           {"double_blocks.N.img_mlp.2.*", {"transformer_blocks.N.ff.net.2.*"}},
           {"double_blocks.N.txt_mlp.0.*", {"transformer_blocks.N.ff_context.net.0.proj.*"}},
           {"double_blocks.N.txt_mlp.2.*", {"transformer_blocks.N.ff_context.net.2.*"}},
           {"single_blocks.N.modulation.lin.*", {"single_transformer_blocks.N.norm.linear.*"}},
           {"single_blocks.N.linear1.*",
            {"single_transformer_blocks.N.attn.to_q.*", "single_transformer_blocks.N.attn.to_k.*",
             "single_transformer_blocks.N.attn.to_v.*", "single_transformer_blocks.N.proj_mlp.*"},
            Layout::same,
            {1, 1, 1, 4}},
           {"single_blocks.N.linear2.*", {"single_transformer_blocks.N.proj_out.*"}},
           {"final_layer.linear.*", {"proj_out.*"}},
           {"final_layer.adaLN_modulation.1.*", {"norm_out.linear.*"}, Layout::halves_swapped}}});
  return table;
}

}  // namespace tessera::load::names
