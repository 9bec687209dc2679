#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// T5 encoder with the names of llama.cpp.
inline const NameTable& t5() {
  static const NameTable table{
      .family = "T5",
      .types = {"T5EncoderModel"},
      .architectures = {"t5", "t5encoder"},
      .marks = {"enc.blk.0.attn_q.weight"},
      .unread = {"dec.*", "output.weight"},
      .rules = {
          {"token_embd.weight", {"shared.weight"}},
          {"enc.blk.N.attn_norm.weight", {"encoder.block.N.layer.0.layer_norm.weight"}},
          {"enc.blk.N.attn_q.weight", {"encoder.block.N.layer.0.SelfAttention.q.weight"}},
          {"enc.blk.N.attn_k.weight", {"encoder.block.N.layer.0.SelfAttention.k.weight"}},
          {"enc.blk.N.attn_v.weight", {"encoder.block.N.layer.0.SelfAttention.v.weight"}},
          {"enc.blk.N.attn_o.weight", {"encoder.block.N.layer.0.SelfAttention.o.weight"}},
          {"enc.blk.N.attn_rel_b.weight",
           {"encoder.block.N.layer.0.SelfAttention.relative_attention_bias.weight"}},
          {"enc.blk.N.ffn_norm.weight", {"encoder.block.N.layer.1.layer_norm.weight"}},
          {"enc.blk.N.ffn_gate.weight", {"encoder.block.N.layer.1.DenseReluDense.wi_0.weight"}},
          {"enc.blk.N.ffn_up.weight", {"encoder.block.N.layer.1.DenseReluDense.wi_1.weight"}},
          {"enc.blk.N.ffn_down.weight", {"encoder.block.N.layer.1.DenseReluDense.wo.weight"}},
          {"enc.output_norm.weight", {"encoder.final_layer_norm.weight"}}}};
  return table;
}

}  // namespace tessera::load::names
