#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// Z-Image with the names of Tongyi-MAI; T: layers, noise_refiner, context_refiner.
inline const NameTable& z_image() {
  static const NameTable table{
      .family = "Z-Image",
      .types = {"ZImageTransformer2DModel"},
      .architectures = {"lumina2"},
      .marks = {"cap_pad_token", "layers.0.attention.qkv.weight"},
      .unread = {"norm_final.weight"},
      .rules = {{"x_embedder.*", {"all_x_embedder.2-1.*"}},
                {"final_layer.linear.*", {"all_final_layer.2-1.linear.*"}},
                {"final_layer.adaLN_modulation.1.*", {"all_final_layer.2-1.adaLN_modulation.1.*"}},
                {"T.N.attention.qkv.*",
                 {"T.N.attention.to_q.*", "T.N.attention.to_k.*", "T.N.attention.to_v.*"}},
                {"T.N.attention.out.*", {"T.N.attention.to_out.0.*"}},
                {"T.N.attention.q_norm.*", {"T.N.attention.norm_q.*"}},
                {"T.N.attention.k_norm.*", {"T.N.attention.norm_k.*"}}}};
  return table;
}

}  // namespace tessera::load::names
