#pragma once

#include "load/names/flux_norms.h"

namespace tessera::load::names {

/// FLUX.2 with the names of Black Forest Labs.
inline const NameTable& flux2() {
  static const NameTable table = with_flux_norms(
      {.family = "FLUX.2",
       .types = {"Flux2Transformer2DModel"},
       .architectures = {"flux", "flux2"},
       .marks = {"double_stream_modulation_img.lin.weight"},
       .unread = {},
       .rules = {
           {"img_in.*", {"x_embedder.*"}},
           {"txt_in.*", {"context_embedder.*"}},
           {"time_in.in_layer.*", {"time_guidance_embed.timestep_embedder.linear_1.*"}},
           {"time_in.out_layer.*", {"time_guidance_embed.timestep_embedder.linear_2.*"}},
           {"guidance_in.in_layer.*", {"time_guidance_embed.guidance_embedder.linear_1.*"}},
           {"guidance_in.out_layer.*", {"time_guidance_embed.guidance_embedder.linear_2.*"}},
           {"double_stream_modulation_img.lin.*", {"double_stream_modulation_img.linear.*"}},
           {"double_stream_modulation_txt.lin.*", {"double_stream_modulation_txt.linear.*"}},
           {"single_stream_modulation.lin.*", {"single_stream_modulation.linear.*"}},
           {"double_blocks.N.img_attn.qkv.*",
            {"transformer_blocks.N.attn.to_q.*", "transformer_blocks.N.attn.to_k.*",
             "transformer_blocks.N.attn.to_v.*"}},
           {"double_blocks.N.txt_attn.qkv.*",
            {"transformer_blocks.N.attn.add_q_proj.*", "transformer_blocks.N.attn.add_k_proj.*",
             "transformer_blocks.N.attn.add_v_proj.*"}},
           {"double_blocks.N.img_attn.proj.*", {"transformer_blocks.N.attn.to_out.0.*"}},
           {"double_blocks.N.txt_attn.proj.*", {"transformer_blocks.N.attn.to_add_out.*"}},
           {"double_blocks.N.img_mlp.0.*", {"transformer_blocks.N.ff.linear_in.*"}},
           {"double_blocks.N.img_mlp.2.*", {"transformer_blocks.N.ff.linear_out.*"}},
           {"double_blocks.N.txt_mlp.0.*", {"transformer_blocks.N.ff_context.linear_in.*"}},
           {"double_blocks.N.txt_mlp.2.*", {"transformer_blocks.N.ff_context.linear_out.*"}},
           {"single_blocks.N.linear1.*", {"single_transformer_blocks.N.attn.to_qkv_mlp_proj.*"}},
           {"single_blocks.N.linear2.*", {"single_transformer_blocks.N.attn.to_out.*"}},
           {"final_layer.linear.*", {"proj_out.*"}},
           {"final_layer.adaLN_modulation.1.*", {"norm_out.linear.*"}, Layout::halves_swapped}}});
  return table;
}

}  // namespace tessera::load::names
