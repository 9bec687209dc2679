#include "models/flux_pipeline.h"

#include <numeric>

#include "base/fail.h"

namespace tessera::models {
namespace {

constexpr int64_t kMaskChannels = 4 * 64;
constexpr const char* kKontext = "FluxKontextPipeline";

// diffusers lists these sizes for FLUX.1-Kontext.
const std::vector<std::pair<int, int>> kKontextSizes{
    {672, 1568}, {688, 1504}, {720, 1456},  {752, 1392}, {800, 1328}, {832, 1248},
    {880, 1184}, {944, 1104}, {1024, 1024}, {1104, 944}, {1184, 880}, {1248, 832},
    {1328, 800}, {1392, 752}, {1456, 720},  {1504, 688}, {1568, 672}};

// How the pipelines that edit images run the network.
void add_editing(const FluxConfig& config, const std::string& pipeline, PipelineSpec& spec) {
  if (config.fill_channels() > 0) {
    spec.pipelines = {"FluxFillPipeline"};
    spec.fills_mask = true;
    spec.inpaint_strength = 1;
    spec.defaults = {50, 30};
  } else if (pipeline == kKontext) {
    spec.pipelines = {kKontext};
    spec.takes_references = spec.encodes_mean = true;
    spec.reference_sizes = kKontextSizes;
    spec.most_references = 1;
    spec.inpaint_strength = 1;
  }
}

}  // namespace

FluxConfig parse_flux_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  FluxConfig c;
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = reader.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, 0, 10000);
  c.num_single_layers = reader.integer("num_single_layers", c.num_single_layers, 0, 10000);
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.out_channels = reader.size("out_channels", c.in_channels);
  c.joint_attention_dim = reader.size("joint_attention_dim", c.joint_attention_dim);
  c.pooled_projection_dim = reader.size("pooled_projection_dim", c.pooled_projection_dim);
  c.axes_dims_rope = reader.sizes("axes_dims_rope", c.axes_dims_rope);
  c.guidance_embeds = reader.flag("guidance_embeds", false);
  check_heads(reader, c.num_attention_heads, c.attention_head_dim);
  // FLUX.1-Fill reads a latent more and a mask of 8 x 8 pixels for each of the 2 x 2 of a patch.
  if (c.in_channels != 2 * c.out_channels + kMaskChannels)
    check_channels(reader, c.in_channels, c.out_channels);
  const auto& axes = c.axes_dims_rope;
  bool even = axes.size() == 3;
  for (int64_t dim : axes) even = even && dim % 2 == 0;
  require(even && std::accumulate(axes.begin(), axes.end(), int64_t{0}) == c.attention_head_dim,
          ErrorCode::model,
          "{}: 'axes_dims_rope' [{}]: expected three even widths that fill a head of {}", where,
          fmt::join(axes, ", "), c.attention_head_dim);
  require(reader.size("patch_size", 1) == 1 && c.out_channels % 4 == 0 &&
              c.out_channels <= c.in_channels && c.blocks() > 0,
          ErrorCode::model, "{}: patch_size {}, {} channels in and {} out are not supported", where,
          reader.size("patch_size", 1), c.in_channels, c.out_channels);
  return c;
}

PipelineSpec flux_pipeline(const Source& source) {
  const FluxConfig c = parse_flux_config(source.config, source.where);
  // A model without a guidance input is distilled to few steps: FLUX.1-schnell.
  const int64_t text_tokens = c.guidance_embeds ? 512 : 256;
  PipelineSpec spec;
  spec.pipelines = {"FluxPipeline"};
  spec.blocks = c.blocks();
  spec.make = network_of<Flux>(c);
  spec.facts = facts_of({{"num_layers", c.num_layers},
                         {"num_single_layers", c.num_single_layers},
                         {"num_attention_heads", c.num_attention_heads},
                         {"attention_head_dim", c.attention_head_dim},
                         {"joint_attention_dim", c.joint_attention_dim},
                         {"guidance_embeds", c.guidance_embeds}});
  spec.forward_names = {.conditioning = {"encoder_hidden_states", "pooled_projections"},
                        .timestep_scale = 1000};
  if (c.guidance_embeds) spec.forward_names.conditioning.push_back("guidance");
  spec.inputs = {{"encoder_hidden_states", {text_tokens, c.joint_attention_dim}},
                 {"pooled_projections", {c.pooled_projection_dim}},
                 {"guidance", {}}};
  spec.trained = square_layout(c.out_channels / 4, 2, 128);
  spec.form = nn::LatentForm::packed;
  spec.guided_channels = c.out_channels / 4;
  spec.defaults =
      c.guidance_embeds ? PipelineSpec::Defaults{28, 3.5f} : PipelineSpec::Defaults{4, 1};
  spec.embeds_guidance = spec.predicts_flow = spec.even_sigmas = spec.joint_text = true;
  spec.text_inputs = {{"prompt_embeds", "encoder_hidden_states"},
                      {"pooled_prompt_embeds", "pooled_projections"}};
  spec.text_parts = {
      {.tokenizer = "tokenizer", .encoder = "text_encoder", .tokens = 77, .as_tokenizer = true},
      {.tokenizer = "tokenizer_2",
       .encoder = "text_encoder_2",
       .tokens = text_tokens,
       .adjustable = true}};
  spec.embeddings = [](const std::vector<EncodedText>& texts, int64_t) {
    require(texts[0].states.pooled.defined(), ErrorCode::model,
            "the first text encoder of FLUX pools no text; expected a CLIPTextModel");
    return std::map<std::string, Tensor>{{"prompt_embeds", texts[1].states.last},
                                         {"pooled_prompt_embeds", texts[0].states.pooled}};
  };
  spec.add_conditions = [](const TextRun& run, nn::Conditioning& conditioning) {
    const std::vector<float> scales(static_cast<size_t>(run.batch), run.guidance);
    conditioning.tensors["guidance"] = Tensor::from(std::span<const float>(scales), {run.batch});
  };
  add_editing(c, source.pipeline, spec);
  return spec;
}

}  // namespace tessera::models
