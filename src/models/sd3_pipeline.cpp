#include "models/sd3_pipeline.h"

#include <algorithm>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

// Concatenates both CLIPs, padded with zeros to T5's width, and then T5's tokens (or zeros).
std::map<std::string, Tensor> joined_texts(const std::vector<EncodedText>& texts, int64_t batch,
                                           int64_t width) {
  const int64_t head = texts[0].tokens, length = head + texts[2].tokens;
  Tensor all = Tensor::zeros({batch * length, width}, DType::f32);
  const auto place = [&](const Tensor& part, int64_t from, int64_t column) {
    require(part.defined() && column + part.size(2) <= width, ErrorCode::model,
            "the text encoders of SD3 do not fit a transformer of joint_attention_dim {}", width);
    const std::vector<float> values = part.to_floats();
    for (int64_t r = 0; r < batch; ++r)
      for (int64_t t = 0; t < part.size(1); ++t)
        std::copy_n(values.data() + (r * part.size(1) + t) * part.size(2), part.size(2),
                    all.row<float>(r * length + from + t) + column);
  };
  place(texts[0].states.previous, 0, 0);
  place(texts[1].states.previous, 0, texts[0].states.previous.size(2));
  if (texts[2].states.last.defined()) place(texts[2].states.last, head, 0);
  const Tensor &first = texts[0].states.projected, &second = texts[1].states.projected;
  require(first.defined() && second.defined(), ErrorCode::model,
          "the text encoders of SD3 project no text; expected CLIPTextModelWithProjection");
  return {{"prompt_embeds", all.reshape({batch, length, width})},
          {"pooled_prompt_embeds", ops::concat_columns({first, second})}};
}

}  // namespace

Sd3Config parse_sd3_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  Sd3Config c;
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 1, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.out_channels = reader.size("out_channels", c.out_channels);
  c.patch_size = reader.size("patch_size", c.patch_size);
  c.sample_size = reader.size("sample_size", c.sample_size);
  c.joint_attention_dim = reader.size("joint_attention_dim", c.joint_attention_dim);
  c.pooled_projection_dim = reader.size("pooled_projection_dim", c.pooled_projection_dim);
  c.pos_embed_max_size = reader.integer("pos_embed_max_size", c.pos_embed_max_size, 1, 32768);
  for (int64_t layer : reader.sizes("dual_attention_layers", {})) {
    require(layer < c.num_layers, ErrorCode::model,
            "{}: 'dual_attention_layers' holds {}; there are {} layers", where, layer,
            c.num_layers);
    c.dual_attention_layers.insert(layer);
  }
  c.qk_norm = !reader.choice("qk_norm", "", {"rms_norm"}).empty();
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  check_channels(reader, c.in_channels, c.out_channels);
  const int64_t caption = reader.size("caption_projection_dim", 1152);
  require(caption == c.hidden(), ErrorCode::model,
          "{}: 'caption_projection_dim' is {}; expected {} x {}", where, caption,
          c.num_attention_heads, c.attention_head_dim);
  return c;
}

PipelineSpec sd3_pipeline(const Source& source) {
  const Sd3Config c = parse_sd3_config(source.config, source.where);
  PipelineSpec spec;
  spec.pipelines = {"StableDiffusion3Pipeline"};
  spec.blocks = c.num_layers;
  spec.make = network_of<Sd3>(c);
  spec.facts =
      facts_of({{"num_layers", c.num_layers},
                {"num_attention_heads", c.num_attention_heads},
                {"attention_head_dim", c.attention_head_dim},
                {"joint_attention_dim", c.joint_attention_dim},
                {"dual_attention_layers", static_cast<int64_t>(c.dual_attention_layers.size())},
                {"sample_size", c.sample_size},
                {"patch_size", c.patch_size}});
  spec.forward_names = {.conditioning = {"encoder_hidden_states", "pooled_projections"}};
  spec.inputs = {{"encoder_hidden_states", {333, c.joint_attention_dim}},
                 {"pooled_projections", {c.pooled_projection_dim}}};
  spec.trained = square_layout(c.in_channels, c.patch_size, c.sample_size);
  spec.positions = c.pos_embed_max_size;
  spec.guided_channels = c.in_channels;
  spec.defaults = {28, 7.0f};
  spec.turbo = {4, 1};
  spec.predicts_flow = spec.joint_text = true;
  spec.max_shift = 1.16;
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"},
                      {"pooled_prompt_embeds", "pooled_projections"}};
  spec.text_parts = {
      {.tokenizer = "tokenizer", .encoder = "text_encoder", .tokens = 77, .as_tokenizer = true},
      {.tokenizer = "tokenizer_2", .encoder = "text_encoder_2", .tokens = 77, .as_tokenizer = true},
      {.tokenizer = "tokenizer_3",
       .encoder = "text_encoder_3",
       .tokens = 256,
       .adjustable = true,
       .optional = true}};
  spec.embeddings = [width = c.joint_attention_dim](const auto& texts, int64_t batch) {
    return joined_texts(texts, batch, width);
  };
  return spec;
}

}  // namespace tessera::models
