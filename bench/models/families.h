#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench.h"
#include "models/registry.h"
#include "place.h"

namespace tessera::bench {

using tensor::DType;
using tensor::Tensor;

/// A transformer of a dense family at full width with few blocks.
struct Family {
  const char *name, *type, *config;
};
// Published widths; depths as in peers/families_peer.py.
inline constexpr Family kFamilies[] = {
    {"pixart", "PixArtTransformer2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 72, "num_layers": 3, "in_channels": 4,
         "out_channels": 8, "cross_attention_dim": 1152, "caption_channels": 4096,
         "sample_size": 64, "use_additional_conditions": false})"},
    {"sd3", "SD3Transformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 64, "num_layers": 3,
         "caption_projection_dim": 1536, "joint_attention_dim": 4096,
         "pooled_projection_dim": 2048, "pos_embed_max_size": 96})"},
    {"flux", "FluxTransformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 1,
         "num_single_layers": 2, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
         "guidance_embeds": true, "axes_dims_rope": [16, 56, 56]})"},
    {"hunyuan", "HunyuanDiT2DModel",
     R"({"num_attention_heads": 16, "attention_head_dim": 88, "num_layers": 4,
         "mlp_ratio": 4.3637, "cross_attention_dim": 1024, "cross_attention_dim_t5": 2048,
         "pooled_projection_dim": 1024, "text_len": 77, "text_len_t5": 256,
         "use_style_cond_and_image_meta_size": false})"},
    {"cogvideox", "CogVideoXTransformer3DModel",
     R"({"num_attention_heads": 30, "attention_head_dim": 64, "num_layers": 3,
         "text_embed_dim": 4096, "time_embed_dim": 512, "max_text_seq_length": 226,
         "use_rotary_positional_embeddings": false, "sample_width": 64, "sample_height": 64})"},
    {"klein", "Flux2Transformer2DModel",
     R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 1,
         "num_single_layers": 2, "joint_attention_dim": 7680, "guidance_embeds": false})"},
    {"z_image", "ZImageTransformer2DModel",
     R"({"n_layers": 2, "n_refiner_layers": 1, "axes_lens": [1536, 512, 512]})"},
};

/// A word like pixart:1024 or pixart:1024:int8: a family, tokens of the latent, and a form.
struct FamilyShape {
  std::string name, form;
  int64_t tokens = 0;

  FamilyShape(const std::string& word, const std::string& default_form) : form(default_form) {
    const size_t first = std::min(word.find(':'), word.size());
    const size_t second = std::min(word.find(':', first + 1), word.size());
    name = word.substr(0, first);
    if (first < word.size()) tokens = std::atol(word.c_str() + first + 1);
    if (second < word.size()) form = word.substr(second + 1);
  }
};

inline const Family& family_of(const std::string& name) {
  for (const Family& family : kFamilies)
    if (name == family.name) return family;
  std::fprintf(stderr, "no family '%s'\n", name.c_str());
  std::exit(2);
}

/// Random values with the example shapes of a spec.
inline nn::Conditioning filled(const nn::Conditioning& example, const Place& place) {
  nn::Conditioning c;
  for (const auto& [name, x] : example.tensors)
    c.tensors[name] = place(x.dtype() == DType::i32 ? Tensor::zeros(x.shape(), DType::i32)
                                                    : random_tensor(x.shape(), DType::f32, 3));
  return c;
}

inline nn::TokenLayout layout_of(const models::PipelineSpec& spec, const std::string& name,
                                 int64_t tokens) {
  const bool video = name == "cogvideox";
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(double(video ? 1024 : tokens))));
  return spec.layout(2 * side, 2 * side, video ? tokens / 1024 : 0);
}

}  // namespace tessera::bench
