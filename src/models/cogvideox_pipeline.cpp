#include "models/cogvideox_pipeline.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::models {
CogVideoXConfig parse_cogvideox_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  CogVideoXConfig c;
  reader.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  reader.choice("timestep_activation_fn", "silu", {"silu"});
  reader.refuse("use_learned_positional_embeddings", "a table of learned positions");
  require(!reader.has("ofs_embed_dim"), ErrorCode::model,
          "{}: 'ofs_embed_dim': images as a video's start are not supported", where);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 1, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.out_channels = reader.size("out_channels", c.out_channels);
  c.patch_size = reader.size("patch_size", c.patch_size);
  c.patch_size_t = reader.integer("patch_size_t", 0, 1, 1024);
  c.time_embed_dim = reader.size("time_embed_dim", c.time_embed_dim);
  c.text_embed_dim = reader.size("text_embed_dim", c.text_embed_dim);
  c.max_text_seq_length = reader.size("max_text_seq_length", c.max_text_seq_length);
  c.sample_width = reader.size("sample_width", c.sample_width);
  c.sample_height = reader.size("sample_height", c.sample_height);
  c.sample_frames = reader.size("sample_frames", c.sample_frames);
  c.temporal_compression_ratio = reader.size("temporal_compression_ratio", 4);
  c.spatial_interpolation_scale = reader.positive("spatial_interpolation_scale", 1.875);
  c.temporal_interpolation_scale = reader.positive("temporal_interpolation_scale", 1);
  c.norm_eps = reader.fraction("norm_eps", c.norm_eps);
  c.rotary = reader.flag("use_rotary_positional_embeddings", false);
  c.attention_bias = reader.flag("attention_bias", true);
  c.patch_bias = reader.flag("patch_bias", true);
  c.norm_elementwise_affine = reader.flag("norm_elementwise_affine", true);
  c.flip_sin_to_cos = reader.flag("flip_sin_to_cos", true);
  c.freq_shift = reader.number("freq_shift", 0, 0, 1);
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  check_channels(reader, c.in_channels, c.out_channels);
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
