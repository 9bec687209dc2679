#include "models/cogvideox_recipe.h"

#include <algorithm>

#include "base/fail.h"
#include "models/text_recipe.h"

namespace tessera::models {
namespace {

class CogVideoXRecipe : public TextRecipe {
 public:
  explicit CogVideoXRecipe(const CogVideoXConfig& c) : config_(c) {
    fact("num_layers", c.num_layers);
    fact("num_attention_heads", c.num_attention_heads);
    fact("attention_head_dim", c.attention_head_dim);
    fact("text_embed_dim", c.text_embed_dim);
    fact("sample_height", c.sample_height);
    fact("sample_width", c.sample_width);
    fact("sample_frames", c.sample_frames);
  }
  Defaults defaults() const override { return {50, 6.0f}; }
  int64_t frames_per_latent() const override { return config_.temporal_compression_ratio; }
  int64_t blocks() const override { return config_.num_layers; }
  std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                     nn::DType dtype) const override {
    return std::make_unique<CogVideoX>(config_, weights, portion, dtype);
  }
  nn::LatentForm form() const override { return nn::LatentForm::video; }
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t frames) const override {
    const CogVideoXConfig& c = config_;
    const int64_t trained = (c.sample_frames - 1) / c.temporal_compression_ratio + 1;
    const int64_t depth = std::max<int64_t>(c.patch_size_t, 1);
    nn::TokenLayout layout{
        .channels = c.in_channels,
        .size = {frames ? frames : (trained + depth - 1) / depth * depth,
                 height ? height : c.sample_height, width ? width : c.sample_width},
        .patch = {depth, c.patch_size, c.patch_size}};
    for (size_t i = 0; i < 3; ++i)
      require(
          layout.size[i] > 0 && layout.size[i] % layout.patch[i] == 0, ErrorCode::usage,
          "a latent of {} frames, {} x {} (width x height) does not fit patches of {} x {} x {}",
          layout.size[0], layout.size[2], layout.size[1], depth, c.patch_size, c.patch_size);
    return layout;
  }
  int64_t guided_channels(const std::string&) const override { return config_.in_channels; }
  ForwardNames forward_names() const override {
    return {"hidden_states", "timestep", {"encoder_hidden_states"}};
  }
  int64_t prefix(const nn::Conditioning& conditioning) const override {
    const auto& text = conditioning.tensors.at("encoder_hidden_states");
    return text.rank() == 3 ? text.size(1) : 0;
  }
  nn::Conditioning example(int64_t rows) const override {
    nn::Conditioning c;
    c.tensors["encoder_hidden_states"] =
        meta({rows, config_.max_text_seq_length, config_.text_embed_dim});
    return c;
  }
  std::vector<std::pair<std::string, std::string>> text_inputs() const override {
    return {{"prompt_embeds", "encoder_hidden_states"}};
  }
  std::vector<TextPart> text_parts(const std::string&) const override {
    return {{.tokenizer = "tokenizer",
             .encoder = "text_encoder",
             .tokens = config_.max_text_seq_length}};
  }
  std::map<std::string, Tensor> embeddings(const std::vector<EncodedText>& texts,
                                           int64_t) const override {
    return {{"prompt_embeds", texts[0].states.last}};
  }

 private:
  CogVideoXConfig config_;
};

}  // namespace

CogVideoXConfig parse_cogvideox_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  CogVideoXConfig c;
  read.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  read.choice("timestep_activation_fn", "silu", {"silu"});
  read.refuse("use_learned_positional_embeddings", "a table of learned positions");
  require(!read.has("ofs_embed_dim"), ErrorCode::model,
          "{}: 'ofs_embed_dim': pictures as a video's start are not supported", where);
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
  require(c.hidden() % 16 == 0 && (!c.rotary || c.attention_head_dim % 16 == 0) &&
              c.out_channels == c.in_channels,
          ErrorCode::model, "{}: {} heads of {}, {} channels in and {} out do not fit", where,
          c.num_attention_heads, c.attention_head_dim, c.in_channels, c.out_channels);
  return c;
}

std::unique_ptr<Recipe> cogvideox_recipe(const base::Json& config, const std::string& where) {
  return std::make_unique<CogVideoXRecipe>(parse_cogvideox_config(config, where));
}

}  // namespace tessera::models
