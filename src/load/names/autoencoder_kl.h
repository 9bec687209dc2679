#pragma once

#include "load/name_rules.h"

namespace tessera::load::names {

/// The image VAE of latent diffusion, including FLUX.2's, with the names of CompVis, Stability AI
/// and Black Forest Labs; T: encoder, decoder. The decoder numbers the levels from the largest
/// image.
inline const NameTable& autoencoder_kl() {
  static const NameTable table{
      .family = "AutoencoderKL",
      .types = {"AutoencoderKL", "AutoencoderKLFlux2"},
      .architectures = {},
      .marks = {"decoder.up.0.block.0.norm1.weight", "encoder.down.0.block.0.norm1.weight"},
      .unread = {},
      .rules = {
          {"T.norm_out.*", {"T.conv_norm_out.*"}},
          {"T.mid.block_1.nin_shortcut.*", {"T.mid_block.resnets.0.conv_shortcut.*"}},
          {"T.mid.block_2.nin_shortcut.*", {"T.mid_block.resnets.1.conv_shortcut.*"}},
          {"T.mid.block_1.norm1.*", {"T.mid_block.resnets.0.norm1.*"}},
          {"T.mid.block_1.norm2.*", {"T.mid_block.resnets.0.norm2.*"}},
          {"T.mid.block_1.conv1.*", {"T.mid_block.resnets.0.conv1.*"}},
          {"T.mid.block_1.conv2.*", {"T.mid_block.resnets.0.conv2.*"}},
          {"T.mid.block_2.norm1.*", {"T.mid_block.resnets.1.norm1.*"}},
          {"T.mid.block_2.norm2.*", {"T.mid_block.resnets.1.norm2.*"}},
          {"T.mid.block_2.conv1.*", {"T.mid_block.resnets.1.conv1.*"}},
          {"T.mid.block_2.conv2.*", {"T.mid_block.resnets.1.conv2.*"}},
          {"T.mid.attn_1.norm.*", {"T.mid_block.attentions.0.group_norm.*"}},
          {"T.mid.attn_1.q.*", {"T.mid_block.attentions.0.to_q.*"}, Layout::pixel},
          {"T.mid.attn_1.k.*", {"T.mid_block.attentions.0.to_k.*"}, Layout::pixel},
          {"T.mid.attn_1.v.*", {"T.mid_block.attentions.0.to_v.*"}, Layout::pixel},
          {"T.mid.attn_1.proj_out.*", {"T.mid_block.attentions.0.to_out.0.*"}, Layout::pixel},
          {"encoder.down.N.block.M.nin_shortcut.*",
           {"encoder.down_blocks.N.resnets.M.conv_shortcut.*"}},
          {"encoder.down.N.block.M.T.*", {"encoder.down_blocks.N.resnets.M.T.*"}},
          {"encoder.down.N.downsample.conv.*", {"encoder.down_blocks.N.downsamplers.0.conv.*"}},
          {"decoder.up.R.block.M.nin_shortcut.*",
           {"decoder.up_blocks.R.resnets.M.conv_shortcut.*"}},
          {"decoder.up.R.block.M.T.*", {"decoder.up_blocks.R.resnets.M.T.*"}},
          {"decoder.up.R.upsample.conv.*", {"decoder.up_blocks.R.upsamplers.0.conv.*"}},
          {"encoder.quant_conv.*", {"quant_conv.*"}},
          {"decoder.post_quant_conv.*", {"post_quant_conv.*"}}}};
  return table;
}

}  // namespace tessera::load::names
