#include "models/cogvideox_pipeline.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::models {
CogVideoXConfig parse_cogvideox_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  CogVideoXConfig c;
  read.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  read.choice("timestep_activation_fn", "silu", {"silu"});
  read.refuse("use_learned_positional_embeddings", "a table of learned positions");
  require(!read.has("ofs_embed_dim"), ErrorCode::model,
          "{}: 'ofs_embed_dim': images as a video's start are not supported", where);
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = read.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = read.integer("num_layers", c.num_layers, 1, 10000);
  c.in_channels = read.size("in_channels", c.in_channels);
  c.out_channels = read.size("out_channels", c.out_channels);
  c.patch_size = read.size("patch_size", c.patch_size);
  c.patch_size_t = read.integer("patch_size_t", 0, 1, 1024);
  c.time_embed_dim = read.size("time_embed_dim", c.time_embed_dim);
  c.text_embed_dim = read.size("text_embed_dim", c.text_embed_dim);
  c.max_text_seq_length = read.size("max_text_seq_length", c.max_text_seq_length);
  c.sample_width = read.size("sample_width", c.sample_width);
  c.sample_height = read.size("sample_height", c.sample_height);
  c.sample_frames = read.size("sample_frames", c.sample_frames);
  c.temporal_compression_ratio = read.size("temporal_compression_ratio", 4);
  c.spatial_interpolation_scale = read.positive("spatial_interpolation_scale", 1.875);
  c.temporal_interpolation_scale = read.positive("temporal_interpolation_scale", 1);
  c.norm_eps = read.fraction("norm_eps", c.norm_eps);
  c.rotary = read.flag("use_rotary_positional_embeddings", false);
  c.attention_bias = read.flag("attention_bias", true);
  c.patch_bias = read.flag("patch_bias", true);
  c.norm_elementwise_affine = read.flag("norm_elementwise_affine", true);
  c.flip_sin_to_cos = read.flag("flip_sin_to_cos", true);
  c.freq_shift = read.number("freq_shift", 0, 0, 1);
  check_heads(read, c.num_attention_heads, c.attention_head_dim);
  check_channels(read, c.in_channels, c.out_channels);
  require(c.hidden() % 16 == 0 && (!c.rotary || c.attention_head_dim % 16 == 0) &&
              c.out_channels == c.in_channels,
          ErrorCode::model, "{}: {} heads of {}, {} channels in and {} out do not fit", where,
          c.num_attention_heads, c.attention_head_dim, c.in_channels, c.out_channels);
  return c;
}

PipelineSpec cogvideox_pipeline(const Source& source) {
  const CogVideoXConfig c = parse_cogvideox_config(source.config, source.where);
  const int64_t frames = (c.sample_frames - 1) / c.temporal_compression_ratio + 1;
  const int64_t depth = std::max<int64_t>(c.patch_size_t, 1);
  // CogVideoX 1.5 has a maximum position; the authors' program generates 1360 x 768 at 16 frames a
  // second.
  const bool wide = c.patch_size_t > 0 && c.sample_height == 300 && c.sample_width == 300;
  PipelineSpec spec;
  spec.pipelines = {"CogVideoXPipeline"};
  spec.blocks = c.num_layers;
  spec.make = network_of<CogVideoX>(c);
  spec.facts = facts_of({{"num_layers", c.num_layers},
                         {"num_attention_heads", c.num_attention_heads},
                         {"attention_head_dim", c.attention_head_dim},
                         {"text_embed_dim", c.text_embed_dim},
                         {"sample_height", c.sample_height},
                         {"sample_width", c.sample_width},
                         {"sample_frames", c.sample_frames}});
  spec.forward_names.conditioning = {"encoder_hidden_states"};
  spec.inputs = {{"encoder_hidden_states", {c.max_text_seq_length, c.text_embed_dim}}};
  spec.trained = {.channels = c.in_channels,
                  .size = {(frames + depth - 1) / depth * depth, wide ? 96 : c.sample_height,
                           wide ? 170 : c.sample_width},
                  .patch = {depth, c.patch_size, c.patch_size}};
  spec.form = nn::LatentForm::video;
  spec.frames_per_latent = c.temporal_compression_ratio;
  spec.trained_frames = (frames - 1) * c.temporal_compression_ratio + 1;
  spec.frame_rate = c.patch_size_t > 0 ? 16 : 8;
  spec.guided_channels = c.in_channels;
  spec.defaults = {50, 6.0f};
  spec.joint_text = true;
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"}};
  spec.text_parts = {
      {.tokenizer = "tokenizer", .encoder = "text_encoder", .tokens = c.max_text_seq_length}};
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[0].states.last}};
  };
  return spec;
}

}  // namespace tessera::models
