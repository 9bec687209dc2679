#include "models/pixart_recipe.h"

#include <algorithm>

#include "base/fail.h"
#include "models/resolution_bins.h"
#include "models/text_recipe.h"
#include "tokenizer/caption.h"

namespace tessera::models {
namespace {

class PixartRecipe : public TextRecipe {
 public:
  explicit PixartRecipe(const PixartConfig& c) : config_(c) {
    fact("num_layers", c.num_layers);
    fact("num_attention_heads", c.num_attention_heads);
    fact("attention_head_dim", c.attention_head_dim);
    fact("caption_channels", c.caption_channels);
    fact("sample_size", c.sample_size);
    fact("patch_size", c.patch_size);
  }
  Defaults defaults() const override { return {20, 4.5f}; }
  int64_t blocks() const override { return config_.num_layers; }
  std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                     nn::DType dtype) const override {
    return std::make_unique<Pixart>(config_, weights, portion, dtype);
  }
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t) const override {
    return picture_layout(config_.in_channels, config_.patch_size, height, width,
                          config_.sample_size);
  }
  int64_t guided_channels(const std::string&) const override { return config_.in_channels; }
  ForwardNames forward_names() const override {
    std::vector<std::string> needed{"encoder_hidden_states"};
    if (config_.use_additional_conditions)
      needed.insert(needed.end(), {"resolution", "aspect_ratio"});
    return {"hidden_states", "timestep", needed, {"encoder_attention_mask"}};
  }
  nn::Conditioning example(int64_t rows) const override {
    nn::Conditioning c;
    c.tensors["encoder_hidden_states"] = meta({rows, 300, config_.caption_channels});
    c.tensors["resolution"] = meta({rows, 2});
    c.tensors["aspect_ratio"] = meta({rows, 1});
    return c;
  }
  std::vector<std::pair<std::string, std::string>> text_inputs() const override {
    return {{"prompt_embeds", "encoder_hidden_states"},
            {"prompt_attention_mask", "encoder_attention_mask"}};
  }
  std::vector<TextPart> text_parts(const std::string& pipeline) const override {
    return {{.tokenizer = "tokenizer",
             .encoder = "text_encoder",
             .tokens = pipeline == "PixArtAlphaPipeline" ? 120 : 300,
             .masked = true,
             .adjustable = true}};
  }
  std::optional<Bin> binned(int64_t height, int64_t width) const override {
    return pixart_bin(config_.sample_size, height, width);
  }
  std::string cleaned(const std::string& prompt) const override {
    return tokenizer::plain_caption(prompt);
  }
  bool cleans_captions() const override { return true; }
  std::map<std::string, Tensor> embeddings(const std::vector<EncodedText>& texts,
                                           int64_t) const override {
    return {{"prompt_embeds", texts[0].states.last}, {"prompt_attention_mask", texts[0].mask}};
  }
  void add_conditions(const TextRun& run, nn::Conditioning& conditioning) const override {
    if (!config_.use_additional_conditions) return;
    Tensor pixels = Tensor::empty({run.rows, 2}, DType::f32);
    Tensor ratio = Tensor::empty({run.rows, 1}, DType::f32);
    for (int64_t r = 0; r < run.rows; ++r) {
      pixels.row<float>(r)[0] = static_cast<float>(run.height);
      pixels.row<float>(r)[1] = static_cast<float>(run.width);
      ratio.row<float>(r)[0] = static_cast<float>(double(run.height) / double(run.width));
    }
    conditioning.tensors["resolution"] = pixels;
    conditioning.tensors["aspect_ratio"] = ratio;
  }

 private:
  PixartConfig config_;
};

}  // namespace

PixartConfig parse_pixart_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  PixartConfig c;
  read.choice("norm_type", "ada_norm_single", {"ada_norm_single"});
  read.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  read.choice("attention_type", "default", {"default"});
  read.refuse("norm_elementwise_affine", "a norm with weights");
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = read.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = read.integer("num_layers", c.num_layers, 1, 10000);
  c.in_channels = read.size("in_channels", c.in_channels);
  c.out_channels = read.size("out_channels", c.out_channels);
  c.patch_size = read.size("patch_size", c.patch_size);
  c.sample_size = read.size("sample_size", c.sample_size);
  c.cross_attention_dim = read.size("cross_attention_dim", c.cross_attention_dim);
  c.caption_channels = read.size("caption_channels");
  c.interpolation_scale =
      read.positive("interpolation_scale", double(std::max<int64_t>(c.sample_size / 64, 1)));
  c.attention_bias = read.flag("attention_bias", true);
  c.use_additional_conditions = read.flag("use_additional_conditions", c.sample_size == 128);
  check_heads(read, c.num_attention_heads, c.attention_head_dim);
  const bool third = !c.use_additional_conditions || c.hidden() % 3 == 0;
  require(c.hidden() % 4 == 0 && third && c.cross_attention_dim == c.hidden(), ErrorCode::model,
          "{}: {} heads of {} channels do not fit cross_attention_dim {}", where,
          c.num_attention_heads, c.attention_head_dim, c.cross_attention_dim);
  require(c.sample_size % c.patch_size == 0 && c.out_channels >= c.in_channels, ErrorCode::model,
          "{}: sample_size {}, patch_size {}, {} channels in and {} out do not fit", where,
          c.sample_size, c.patch_size, c.in_channels, c.out_channels);
  return c;
}

std::unique_ptr<Recipe> pixart_recipe(const base::Json& config, const std::string& where) {
  return std::make_unique<PixartRecipe>(parse_pixart_config(config, where));
}

}  // namespace tessera::models
