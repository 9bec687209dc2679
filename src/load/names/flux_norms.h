#pragma once

#include <utility>

#include "load/name_rules.h"

namespace tessera::load::names {

/// A table with the norms of queries and keys of FLUX.1 and FLUX.2, whose `scale` newer programs
/// write as `weight`.
inline NameTable with_flux_norms(NameTable table) {
  const NameRule norms[] = {
      {"double_blocks.N.img_attn.norm.query_norm.scale",
       {"transformer_blocks.N.attn.norm_q.weight"}},
      {"double_blocks.N.img_attn.norm.query_norm.weight",
       {"transformer_blocks.N.attn.norm_q.weight"}},
      {"double_blocks.N.img_attn.norm.key_norm.scale", {"transformer_blocks.N.attn.norm_k.weight"}},
      {"double_blocks.N.img_attn.norm.key_norm.weight",
       {"transformer_blocks.N.attn.norm_k.weight"}},
      {"double_blocks.N.txt_attn.norm.query_norm.scale",
       {"transformer_blocks.N.attn.norm_added_q.weight"}},
      {"double_blocks.N.txt_attn.norm.query_norm.weight",
       {"transformer_blocks.N.attn.norm_added_q.weight"}},
      {"double_blocks.N.txt_attn.norm.key_norm.scale",
       {"transformer_blocks.N.attn.norm_added_k.weight"}},
      {"double_blocks.N.txt_attn.norm.key_norm.weight",
       {"transformer_blocks.N.attn.norm_added_k.weight"}},
      {"single_blocks.N.norm.query_norm.scale", {"single_transformer_blocks.N.attn.norm_q.weight"}},
      {"single_blocks.N.norm.query_norm.weight",
       {"single_transformer_blocks.N.attn.norm_q.weight"}},
      {"single_blocks.N.norm.key_norm.scale", {"single_transformer_blocks.N.attn.norm_k.weight"}},
      {"single_blocks.N.norm.key_norm.weight", {"single_transformer_blocks.N.attn.norm_k.weight"}}};
  table.rules.insert(table.rules.end(), std::begin(norms), std::end(norms));
  return table;
}

}  // namespace tessera::load::names
