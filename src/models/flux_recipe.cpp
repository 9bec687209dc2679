#include "models/flux_recipe.h"

#include <numeric>

#include "base/fail.h"
#include "models/text_recipe.h"

namespace tessera::models {
namespace {

class FluxRecipe : public TextRecipe {
 public:
  explicit FluxRecipe(const FluxConfig& c) : config_(c) {
    fact("num_layers", c.num_layers);
    fact("num_single_layers", c.num_single_layers);
    fact("num_attention_heads", c.num_attention_heads);
    fact("attention_head_dim", c.attention_head_dim);
    fact("joint_attention_dim", c.joint_attention_dim);
    fact("guidance_embeds", c.guidance_embeds);
  }
  // Without guidance as an input it is the model distilled to few steps: FLUX.1-schnell.
  Defaults defaults() const override {
    return config_.guidance_embeds ? Defaults{28, 3.5f} : Defaults{4, 1.0f};
  }
  int64_t blocks() const override { return config_.blocks(); }
  std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                     nn::DType dtype) const override {
    return std::make_unique<Flux>(config_, weights, portion, dtype);
  }
  nn::LatentForm form() const override { return nn::LatentForm::packed; }
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t) const override {
    return picture_layout(config_.in_channels / 4, 2, height, width, 128);
  }
  int64_t guided_channels(const std::string&) const override { return config_.in_channels / 4; }
  ForwardNames forward_names() const override {
    std::vector<std::string> needed{"encoder_hidden_states", "pooled_projections"};
    if (config_.guidance_embeds) needed.push_back("guidance");
    return {"hidden_states", "timestep", needed, {}, 1000};
  }
  int64_t prefix(const nn::Conditioning& conditioning) const override {
    const auto& text = conditioning.tensors.at("encoder_hidden_states");
    return text.rank() == 3 ? text.size(1) : 0;
  }
  nn::Conditioning example(int64_t rows) const override {
    nn::Conditioning c;
    c.tensors["encoder_hidden_states"] = meta({rows, text_tokens(), config_.joint_attention_dim});
    c.tensors["pooled_projections"] = meta({rows, config_.pooled_projection_dim});
    c.tensors["guidance"] = meta({rows});
    return c;
  }
  std::vector<std::pair<std::string, std::string>> text_inputs() const override {
    return {{"prompt_embeds", "encoder_hidden_states"},
            {"pooled_prompt_embeds", "pooled_projections"}};
  }
  std::vector<TextPart> text_parts(const std::string&) const override {
    return {
        {.tokenizer = "tokenizer", .encoder = "text_encoder", .tokens = 77, .as_tokenizer = true},
        {.tokenizer = "tokenizer_2",
         .encoder = "text_encoder_2",
         .tokens = text_tokens(),
         .adjustable = true}};
  }
  std::map<std::string, Tensor> embeddings(const std::vector<EncodedText>& texts,
                                           int64_t) const override {
    require(texts[0].states.pooled.defined(), ErrorCode::model,
            "the first text encoder of FLUX pools no text; expected a CLIPTextModel");
    return {{"prompt_embeds", texts[1].states.last},
            {"pooled_prompt_embeds", texts[0].states.pooled}};
  }
  void add_conditions(const TextRun& run, nn::Conditioning& conditioning) const override {
    const std::vector<float> scales(static_cast<size_t>(run.rows), run.guidance);
    conditioning.tensors["guidance"] = Tensor::from(std::span<const float>(scales), {run.rows});
  }
  bool embeds_guidance() const override { return true; }
  bool predicts_flow() const override { return true; }
  bool even_sigmas() const override { return true; }

 private:
  int64_t text_tokens() const { return config_.guidance_embeds ? 512 : 256; }
  FluxConfig config_;
};

}  // namespace

FluxConfig parse_flux_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  FluxConfig c;
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = read.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = read.integer("num_layers", c.num_layers, 0, 10000);
  c.num_single_layers = read.integer("num_single_layers", c.num_single_layers, 0, 10000);
  c.in_channels = read.size("in_channels", c.in_channels);
  c.out_channels = read.size("out_channels", c.in_channels);
  c.joint_attention_dim = read.size("joint_attention_dim", c.joint_attention_dim);
  c.pooled_projection_dim = read.size("pooled_projection_dim", c.pooled_projection_dim);
  c.axes_dims_rope = read.sizes("axes_dims_rope", c.axes_dims_rope);
  c.guidance_embeds = read.flag("guidance_embeds", false);
  check_heads(read, c.num_attention_heads, c.attention_head_dim);
  const auto& axes = c.axes_dims_rope;
  bool even = axes.size() == 3;
  for (int64_t dim : axes) even = even && dim % 2 == 0;
  require(even && std::accumulate(axes.begin(), axes.end(), int64_t{0}) == c.attention_head_dim,
          ErrorCode::model,
          "{}: 'axes_dims_rope' [{}]: expected three even widths that fill a head of {}", where,
          fmt::join(axes, ", "), c.attention_head_dim);
  require(read.size("patch_size", 1) == 1 && c.in_channels % 4 == 0 &&
              c.out_channels == c.in_channels && c.blocks() > 0,
          ErrorCode::model, "{}: patch_size {}, {} channels in and {} out are not supported", where,
          read.size("patch_size", 1), c.in_channels, c.out_channels);
  return c;
}

std::unique_ptr<Recipe> flux_recipe(const base::Json& config, const std::string& where) {
  return std::make_unique<FluxRecipe>(parse_flux_config(config, where));
}

}  // namespace tessera::models
