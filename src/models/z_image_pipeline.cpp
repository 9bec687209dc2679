#include "models/z_image_pipeline.h"

#include <numeric>

#include "base/fail.h"

namespace tessera::models {

ZImageConfig parse_z_image_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  ZImageConfig c;
  c.dim = reader.size("dim", c.dim);
  c.n_heads = reader.size("n_heads", c.n_heads);
  c.n_layers = reader.integer("n_layers", c.n_layers, 1, 10000);
  c.n_refiner_layers = reader.integer("n_refiner_layers", c.n_refiner_layers, 0, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.cap_feat_dim = reader.size("cap_feat_dim", c.cap_feat_dim);
  c.axes_dims = reader.sizes("axes_dims", c.axes_dims);
  c.axes_lens = reader.sizes("axes_lens", c.axes_lens);
  c.rope_theta = reader.positive("rope_theta", c.rope_theta);
  c.t_scale = reader.positive("t_scale", c.t_scale);
  c.norm_eps = reader.fraction("norm_eps", c.norm_eps);
  c.qk_norm = reader.flag("qk_norm", c.qk_norm);
  const auto patches = reader.sizes("all_patch_size", {c.patch_size});
  require(patches.size() == 1 && patches[0] >= 1 && patches[0] <= 64 &&
              reader.sizes("all_f_patch_size", {1}) == std::vector<int64_t>{1},
          ErrorCode::model,
          "{}: 'all_patch_size' [{}]: expected one patch size, and 'all_f_patch_size' [1]", where,
          fmt::join(patches, ", "));
  c.patch_size = patches[0];
  require(c.dim % c.n_heads == 0, ErrorCode::model, "{}: 'dim' {} is no multiple of 'n_heads' {}",
          where, c.dim, c.n_heads);
  check_heads(reader, c.n_heads, c.head_dim());
  bool even = c.axes_dims.size() == 3 && c.axes_lens.size() == 3;
  for (const int64_t dim : c.axes_dims) even = even && dim % 2 == 0;
  require(
      even && std::accumulate(c.axes_dims.begin(), c.axes_dims.end(), int64_t{0}) == c.head_dim(),
      ErrorCode::model,
      "{}: 'axes_dims' [{}] and 'axes_lens' [{}]: expected three even widths that fill a head "
      "of {}, and three lengths",
      where, fmt::join(c.axes_dims, ", "), fmt::join(c.axes_lens, ", "), c.head_dim());
  return c;
}

PipelineSpec z_image_pipeline(const Source& source) {
  const ZImageConfig c = parse_z_image_config(source.config, source.where);
  PipelineSpec spec;
  spec.pipelines = {"ZImagePipeline"};
  spec.blocks = c.blocks();
  spec.make = network_of<ZImage>(c);
  spec.facts = facts_of({{"n_layers", c.n_layers},
                         {"n_refiner_layers", c.n_refiner_layers},
                         {"n_heads", c.n_heads},
                         {"dim", c.dim},
                         {"cap_feat_dim", c.cap_feat_dim}});
  spec.forward_names = {.latent = "x",
                        .timestep = "t",
                        .conditioning = {"cap_feats"},
                        .optional = {"cap_feats_mask"},
                        .timestep_scale = -1000,
                        .timestep_offset = 1000,
                        .one_frame = true};
  spec.inputs = {{"cap_feats", {512, c.cap_feat_dim}}};
  spec.trained = square_layout(c.in_channels, c.patch_size, 128);
  spec.token_multiple = kZImageMultiple;
  spec.guided_channels = c.in_channels;
  spec.defaults = {8, 0};  // defaults of Turbo, a distilled model
  spec.no_guidance = 0;
  spec.negated = spec.predicts_flow = spec.joint_text = true;
  spec.even_sigmas = spec.float_sigmas = spec.sized_by_image = true;
  spec.inpaint_strength = 1;
  spec.text_inputs = {{"prompt_embeds", "cap_feats"}, {"prompt_embeds_mask", "cap_feats_mask"}};
  spec.text_parts = {{.tokenizer = "tokenizer",
                      .encoder = "text_encoder",
                      .tokens = 512,
                      .masked = true,
                      .adjustable = true,
                      .trimmed = true,
                      .chat = TextChat::thinking,
                      .hidden = {-2}}};
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[0].states.chosen},
                                         {"prompt_embeds_mask", texts[0].mask}};
  };
  return spec;
}

std::vector<std::pair<std::string, base::Json>> z_image_sizes() {
  return {{"z_image_turbo",
           {{"_class_name", "ZImageTransformer2DModel"}, {"axes_lens", {1536, 512, 512}}}}};
}

}  // namespace tessera::models
