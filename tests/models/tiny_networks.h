#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace tessera::models {

/// A network with 12 heads of a number of channels; {} in the configuration is replaced by the
/// number.
struct Network {
  const char *type, *config;
  int64_t head_dim, text, frames;
  int sums_of_latent, sums_of_text;  ///< sums of a forward pass

  std::string json(int64_t dim) const {
    std::string filled = config;
    for (const auto& [name, value] :
         {std::pair{"HEAD", dim}, {"HIDDEN", 12 * dim}, {"AXIS", dim / 3}})
      for (size_t at = filled.find(name); at != std::string::npos; at = filled.find(name))
        filled.replace(at, std::string(name).size(), std::to_string(value));
    return filled;
  }
};

inline const Network kNetworks[] = {
    {"DiTMoE",
     R"({"model_type": "dit_moe", "hidden_size": HIDDEN, "depth": 2, "num_heads": 12,
         "patch_size": 2, "in_channels": 4, "input_size": 8, "mlp_ratio": 4, "num_experts": 4,
         "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
         "learn_sigma": true, "num_classes": 5, "attention": "flash", "qk_norm": true,
         "frequency_embedding_size": 64})",
     8, 0, 0, 4, 0},
    {"PixArtTransformer2DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 2,
         "sample_size": 128, "cross_attention_dim": HIDDEN, "caption_channels": 10})",
     4, 6, 0, 6, 0},
    {"SD3Transformer2DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 3, "in_channels": 4,
         "out_channels": 4, "caption_projection_dim": HIDDEN, "joint_attention_dim": 10,
         "pooled_projection_dim": 6, "pos_embed_max_size": 8, "qk_norm": "rms_norm",
         "dual_attention_layers": [0]})",
     4, 5, 0, 7, 4},
    {"FluxTransformer2DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 1,
         "num_single_layers": 2, "in_channels": 16, "joint_attention_dim": 10,
         "pooled_projection_dim": 6, "axes_dims_rope": [AXIS, AXIS, AXIS],
         "guidance_embeds": true})",
     6, 5, 0, 4, 4},
    {"HunyuanDiT2DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 4, "in_channels": 4,
         "patch_size": 2, "cross_attention_dim": 10, "cross_attention_dim_t5": 16,
         "pooled_projection_dim": 6, "text_len": 3, "text_len_t5": 5})",
     4, 0, 0, 12, 0},
    {"CogVideoXTransformer3DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 2, "in_channels": 4,
         "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": 10,
         "use_rotary_positional_embeddings": true})",
     16, 5, 3, 4, 4},
};

/// Networks with sequences of different lengths, or with tokens outside of denoising.
inline const Network kUnevenNetworks[] = {
    {"ZImageTransformer2DModel",
     R"({"dim": HIDDEN, "n_heads": 12, "n_layers": 2, "n_refiner_layers": 1, "in_channels": 4,
         "cap_feat_dim": 10, "axes_dims": [AXIS, AXIS, AXIS], "axes_lens": [600, 64, 64]})",
     6, 40, 0, 6, 4},
    {"Flux2Transformer2DModel",
     R"({"num_attention_heads": 12, "attention_head_dim": HEAD, "num_layers": 1,
         "num_single_layers": 2, "in_channels": 16, "joint_attention_dim": 10,
         "timestep_guidance_channels": 64, "axes_dims_rope": [2, 2, 2, 2],
         "guidance_embeds": false})",
     8, 5, 0, 4, 4},
};

}  // namespace tessera::models
