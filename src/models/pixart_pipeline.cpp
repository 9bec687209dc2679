#include "models/pixart_pipeline.h"

#include <algorithm>

#include "base/fail.h"
#include "caption/caption.h"
#include "models/resolution_bins.h"

namespace tessera::models {
PixartConfig parse_pixart_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  PixartConfig c;
  reader.choice("norm_type", "ada_norm_single", {"ada_norm_single"});
  reader.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  reader.choice("attention_type", "default", {"default"});
  reader.refuse("norm_elementwise_affine", "a norm with weights");
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 1, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.out_channels = reader.size("out_channels", c.out_channels);
  c.patch_size = reader.size("patch_size", c.patch_size);
  c.sample_size = reader.size("sample_size", c.sample_size);
  c.cross_attention_dim = reader.size("cross_attention_dim", c.cross_attention_dim);
  c.caption_channels = reader.size("caption_channels");
  c.interpolation_scale =
      reader.positive("interpolation_scale", double(std::max<int64_t>(c.sample_size / 64, 1)));
  c.attention_bias = reader.flag("attention_bias", true);
  c.use_additional_conditions = reader.flag("use_additional_conditions", c.sample_size == 128);
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  const bool third = !c.use_additional_conditions || c.hidden() % 3 == 0;
  require(c.hidden() % 4 == 0 && third && c.cross_attention_dim == c.hidden(), ErrorCode::model,
          "{}: {} heads of {} channels do not fit cross_attention_dim {}", where,
          c.num_attention_heads, c.attention_head_dim, c.cross_attention_dim);
  require(c.sample_size % c.patch_size == 0 && c.out_channels >= c.in_channels, ErrorCode::model,
          "{}: sample_size {}, patch_size {}, {} channels in and {} out do not fit", where,
          c.sample_size, c.patch_size, c.in_channels, c.out_channels);
  return c;
}

PipelineSpec pixart_pipeline(const Source& source) {
  const PixartConfig c = parse_pixart_config(source.config, source.where);
  PipelineSpec spec;
  spec.pipelines = {"PixArtAlphaPipeline", "PixArtSigmaPipeline"};
  spec.blocks = c.num_layers;
  spec.make = network_of<Pixart>(c);
  spec.facts = facts_of({{"num_layers", c.num_layers},
                         {"num_attention_heads", c.num_attention_heads},
                         {"attention_head_dim", c.attention_head_dim},
                         {"caption_channels", c.caption_channels},
                         {"sample_size", c.sample_size},
                         {"patch_size", c.patch_size}});
  spec.forward_names = {.conditioning = {"encoder_hidden_states"},
                        .optional = {"encoder_attention_mask"}};
  const int64_t text_tokens = source.pipeline == "PixArtAlphaPipeline" ? 120 : 300;
  spec.inputs = {{"encoder_hidden_states", {text_tokens, c.caption_channels}},
                 {"resolution", {2}},
                 {"aspect_ratio", {1}}};
  spec.trained = square_layout(c.in_channels, c.patch_size, c.sample_size);
  spec.guided_channels = c.in_channels;
  spec.defaults = {20, 4.5f};
  spec.cleans_captions = true;
  spec.one_step_predicts = source.pipeline == "PixArtAlphaPipeline";
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"},
                      {"prompt_attention_mask", "encoder_attention_mask"}};
  spec.text_parts = {{.tokenizer = "tokenizer",
                      .encoder = "text_encoder",
                      .tokens = text_tokens,
                      .masked = true,
                      .adjustable = true}};
  spec.plain_prompt = caption::plain_caption;
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[0].states.last},
                                         {"prompt_attention_mask", texts[0].mask}};
  };
  spec.binned = [side = c.sample_size](int64_t height, int64_t width) {
    return pixart_bin(side, height, width);
  };
  if (!c.use_additional_conditions) return spec;
  spec.forward_names.conditioning.insert(spec.forward_names.conditioning.end(),
                                         {"resolution", "aspect_ratio"});
  spec.add_conditions = [](const TextRun& run, nn::Conditioning& conditioning) {
    Tensor pixels = Tensor::empty({run.batch, 2}, DType::f32);
    Tensor ratio = Tensor::empty({run.batch, 1}, DType::f32);
    for (int64_t r = 0; r < run.batch; ++r) {
      pixels.row<float>(r)[0] = static_cast<float>(run.height);
      pixels.row<float>(r)[1] = static_cast<float>(run.width);
      ratio.row<float>(r)[0] = static_cast<float>(double(run.height) / double(run.width));
    }
    conditioning.tensors["resolution"] = pixels;
    conditioning.tensors["aspect_ratio"] = ratio;
  };
  return spec;
}

}  // namespace tessera::models
