#include "models/flux2_pipeline.h"

#include <numeric>

#include "base/fail.h"

namespace tessera::models {

Flux2Config parse_flux2_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  Flux2Config c;
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 0, 10000);
  c.num_single_layers = reader.integer("num_single_layers", c.num_single_layers, 0, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.joint_attention_dim = reader.size("joint_attention_dim", c.joint_attention_dim);
  c.timestep_guidance_channels =
      reader.size("timestep_guidance_channels", c.timestep_guidance_channels);
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1000);
  c.rope_theta = reader.positive("rope_theta", c.rope_theta);
  c.eps = reader.fraction("eps", c.eps);
  c.axes_dims_rope = reader.sizes("axes_dims_rope", c.axes_dims_rope);
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  require(!reader.flag("guidance_embeds", true), ErrorCode::model,
          "{}: 'guidance_embeds' is true, as in FLUX.2-dev, which is not supported; take a "
          "FLUX.2-klein",
          where);
  const auto& axes = c.axes_dims_rope;
  bool even = axes.size() == 4 && c.timestep_guidance_channels % 2 == 0;
  for (const int64_t dim : axes) even = even && dim % 2 == 0;
  require(even && std::accumulate(axes.begin(), axes.end(), int64_t{0}) == c.attention_head_dim,
          ErrorCode::model,
          "{}: 'axes_dims_rope' [{}]: expected four even widths that fill a head of {}", where,
          fmt::join(axes, ", "), c.attention_head_dim);
  const int64_t out = reader.size("out_channels", c.in_channels);
  require(reader.size("patch_size", 1) == 1 && c.in_channels % 4 == 0 && out == c.in_channels &&
              c.blocks() > 0,
          ErrorCode::model, "{}: patch_size {}, {} channels in and {} out are not supported", where,
          reader.size("patch_size", 1), c.in_channels, out);
  return c;
}

double flux2_shift(int64_t tokens, int steps) {
  const auto line = [&](double slope, double at) { return slope * double(tokens) + at; };
  const double many = line(0.00016927, 0.45666666);  // at 200 steps
  if (tokens > 4300) return many;
  const double few = line(8.73809524e-05, 1.89833333);  // at 10 steps
  const double slope = (many - few) / 190;
  return slope * steps + many - 200 * slope;
}

PipelineSpec flux2_pipeline(const Source& source) {
  const Flux2Config c = parse_flux2_config(source.config, source.where);
  PipelineSpec spec;
  spec.pipelines = {"Flux2KleinPipeline"};
  spec.blocks = c.blocks();
  spec.make = network_of<Flux2>(c);
  spec.facts = facts_of({{"num_layers", c.num_layers},
                         {"num_single_layers", c.num_single_layers},
                         {"num_attention_heads", c.num_attention_heads},
                         {"attention_head_dim", c.attention_head_dim},
                         {"joint_attention_dim", c.joint_attention_dim}});
  spec.forward_names = {
      .conditioning = {"encoder_hidden_states"}, .timestep_scale = 1000, .packed = true};
  spec.inputs = {{"encoder_hidden_states", {512, c.joint_attention_dim}}};
  spec.trained = square_layout(c.in_channels / 4, 2, 128);
  spec.form = nn::LatentForm::patches;
  spec.guided_channels = c.in_channels / 4;
  spec.distilled = source.distilled;
  spec.defaults = spec.distilled ? PipelineSpec::Defaults{4, 1} : PipelineSpec::Defaults{50, 4};
  spec.predicts_flow = spec.even_sigmas = spec.joint_text = true;
  spec.empty_negative = true;
  spec.takes_references = spec.sized_by_image = spec.encodes_mean = spec.masks_patches = true;
  spec.most_image_pixels = 1024 * 1024;
  spec.inpaint_strength = 0.8;
  spec.size_shift = flux2_shift;
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"}};
  spec.text_parts = {{.tokenizer = "tokenizer",
                      .encoder = "text_encoder",
                      .tokens = 512,
                      .masked = true,
                      .adjustable = true,
                      .chat = TextChat::no_thinking,
                      .hidden = {9, 18, 27}}};
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[0].states.chosen}};
  };
  return spec;
}

std::vector<std::pair<std::string, base::Json>> flux2_sizes() {
  const auto size = [](int64_t heads, int64_t doubles, int64_t singles, int64_t text) {
    return base::Json{{"_class_name", "Flux2Transformer2DModel"},
                      {"num_attention_heads", heads},
                      {"num_layers", doubles},
                      {"num_single_layers", singles},
                      {"joint_attention_dim", text},
                      {"guidance_embeds", false},
                      {"is_distilled", true}};
  };
  return {{"flux2_klein_4b", size(24, 5, 20, 7680)}, {"flux2_klein_9b", size(32, 8, 24, 12288)}};
}

}  // namespace tessera::models
