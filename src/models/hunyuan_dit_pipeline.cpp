#include "models/hunyuan_dit_pipeline.h"

#include "base/fail.h"
#include "models/resolution_bins.h"

namespace tessera::models {
HunyuanDitConfig parse_hunyuan_dit_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  HunyuanDitConfig c;
  reader.choice("norm_type", "layer_norm", {"layer_norm"});
  reader.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 2, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.patch_size = reader.size("patch_size", c.patch_size);
  c.sample_size = reader.size("sample_size", c.sample_size);
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1000);
  c.learn_sigma = reader.flag("learn_sigma", true);
  c.use_style_cond_and_image_meta_size = reader.flag("use_style_cond_and_image_meta_size", true);
  c.cross_attention_dim = reader.size("cross_attention_dim", c.cross_attention_dim);
  c.cross_attention_dim_t5 = reader.size("cross_attention_dim_t5", c.cross_attention_dim_t5);
  c.pooled_projection_dim = reader.size("pooled_projection_dim", c.pooled_projection_dim);
  c.text_len = reader.size("text_len", c.text_len);
  c.text_len_t5 = reader.size("text_len_t5", c.text_len_t5);
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  require(
      c.attention_head_dim % 4 == 0 && c.num_layers % 2 == 0 && c.cross_attention_dim_t5 % 8 == 0,
      ErrorCode::model, "{}: {} layers, heads of {} and cross_attention_dim_t5 {} do not fit",
      where, c.num_layers, c.attention_head_dim, c.cross_attention_dim_t5);
  return c;
}

PipelineSpec hunyuan_dit_pipeline(const Source& source) {
  const HunyuanDitConfig c = parse_hunyuan_dit_config(source.config, source.where);
  PipelineSpec spec;
  spec.pipelines = {"HunyuanDiTPipeline"};
  spec.blocks = c.num_layers;
  spec.make = network_of<HunyuanDit>(c);
  spec.facts = facts_of({{"num_layers", c.num_layers},
                         {"num_attention_heads", c.num_attention_heads},
                         {"attention_head_dim", c.attention_head_dim},
                         {"cross_attention_dim", c.cross_attention_dim},
                         {"cross_attention_dim_t5", c.cross_attention_dim_t5},
                         {"sample_size", c.sample_size},
                         {"patch_size", c.patch_size}});
  spec.forward_names = {.conditioning = {"encoder_hidden_states", "encoder_hidden_states_t5"},
                        .optional = {"text_embedding_mask", "text_embedding_mask_t5"}};
  spec.inputs = {{"encoder_hidden_states", {c.text_len, c.cross_attention_dim}},
                 {"encoder_hidden_states_t5", {c.text_len_t5, c.cross_attention_dim_t5}},
                 {"image_meta_size", {6}},
                 {"style", {}, DType::i32}};
  spec.trained = square_layout(c.in_channels, c.patch_size, c.sample_size);
  spec.guided_channels = c.in_channels;
  spec.defaults = {50, 5.0f};
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"},
                      {"prompt_attention_mask", "text_embedding_mask"},
                      {"prompt_embeds_2", "encoder_hidden_states_t5"},
                      {"prompt_attention_mask_2", "text_embedding_mask_t5"}};
  spec.text_parts = {
      {.tokenizer = "tokenizer", .encoder = "text_encoder", .tokens = c.text_len, .masked = true},
      {.tokenizer = "tokenizer_2",
       .encoder = "text_encoder_2",
       .tokens = c.text_len_t5,
       .masked = true}};
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[0].states.last},
                                         {"prompt_attention_mask", texts[0].mask},
                                         {"prompt_embeds_2", texts[1].states.last},
                                         {"prompt_attention_mask_2", texts[1].mask}};
  };
  spec.binned = hunyuan_dit_bin;
  if (!c.use_style_cond_and_image_meta_size) return spec;
  spec.forward_names.conditioning.insert(spec.forward_names.conditioning.end(),
                                         {"image_meta_size", "style"});
  spec.add_conditions = [](const TextRun& run, nn::Conditioning& conditioning) {
    // Original size, target size and crop corner: defaults of the diffusers pipeline.
    const float numbers[] = {
        1024, 1024, static_cast<float>(run.height), static_cast<float>(run.width), 0, 0};
    Tensor sizes = Tensor::empty({run.batch, 6}, DType::f32);
    for (int64_t r = 0; r < run.batch; ++r) std::copy_n(numbers, 6, sizes.row<float>(r));
    conditioning.tensors["image_meta_size"] = sizes;
    conditioning.tensors["style"] = Tensor::zeros({run.batch}, DType::i32);
  };
  return spec;
}

}  // namespace tessera::models
