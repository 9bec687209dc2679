#include "models/hunyuan_dit_recipe.h"

#include "base/fail.h"
#include "models/resolution_bins.h"
#include "models/text_recipe.h"

namespace tessera::models {
namespace {

class HunyuanDitRecipe : public TextRecipe {
 public:
  explicit HunyuanDitRecipe(const HunyuanDitConfig& c) : config_(c) {
    fact("num_layers", c.num_layers);
    fact("num_attention_heads", c.num_attention_heads);
    fact("attention_head_dim", c.attention_head_dim);
    fact("cross_attention_dim", c.cross_attention_dim);
    fact("cross_attention_dim_t5", c.cross_attention_dim_t5);
    fact("sample_size", c.sample_size);
    fact("patch_size", c.patch_size);
  }
  Defaults defaults() const override { return {50, 5.0f}; }
  int64_t blocks() const override { return config_.num_layers; }
  std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                     nn::DType dtype) const override {
    return std::make_unique<HunyuanDit>(config_, weights, portion, dtype);
  }
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t) const override {
    return picture_layout(config_.in_channels, config_.patch_size, height, width,
                          config_.sample_size);
  }
  int64_t guided_channels(const std::string&) const override { return config_.in_channels; }
  ForwardNames forward_names() const override {
    std::vector<std::string> needed{"encoder_hidden_states", "encoder_hidden_states_t5"};
    if (config_.use_style_cond_and_image_meta_size)
      needed.insert(needed.end(), {"image_meta_size", "style"});
    return {"hidden_states", "timestep", needed, {"text_embedding_mask", "text_embedding_mask_t5"}};
  }
  nn::Conditioning example(int64_t rows) const override {
    nn::Conditioning c;
    c.tensors["encoder_hidden_states"] =
        meta({rows, config_.text_len, config_.cross_attention_dim});
    c.tensors["encoder_hidden_states_t5"] =
        meta({rows, config_.text_len_t5, config_.cross_attention_dim_t5});
    c.tensors["image_meta_size"] = meta({rows, 6});
    c.tensors["style"] = meta({rows}, DType::i32);
    return c;
  }
  std::vector<std::pair<std::string, std::string>> text_inputs() const override {
    return {{"prompt_embeds", "encoder_hidden_states"},
            {"prompt_attention_mask", "text_embedding_mask"},
            {"prompt_embeds_2", "encoder_hidden_states_t5"},
            {"prompt_attention_mask_2", "text_embedding_mask_t5"}};
  }
  std::vector<TextPart> text_parts(const std::string&) const override {
    return {{.tokenizer = "tokenizer",
             .encoder = "text_encoder",
             .tokens = config_.text_len,
             .masked = true},
            {.tokenizer = "tokenizer_2",
             .encoder = "text_encoder_2",
             .tokens = config_.text_len_t5,
             .masked = true}};
  }
  std::optional<Bin> binned(int64_t height, int64_t width) const override {
    return hunyuan_dit_bin(height, width);
  }
  std::map<std::string, Tensor> embeddings(const std::vector<EncodedText>& texts,
                                           int64_t) const override {
    return {{"prompt_embeds", texts[0].states.last},
            {"prompt_attention_mask", texts[0].mask},
            {"prompt_embeds_2", texts[1].states.last},
            {"prompt_attention_mask_2", texts[1].mask}};
  }
  void add_conditions(const TextRun& run, nn::Conditioning& conditioning) const override {
    if (!config_.use_style_cond_and_image_meta_size) return;
    // Original size, target size, corner of the crop: what the pipeline gives without a request.
    const float numbers[] = {
        1024, 1024, static_cast<float>(run.height), static_cast<float>(run.width), 0, 0};
    Tensor sizes = Tensor::empty({run.rows, 6}, DType::f32);
    for (int64_t r = 0; r < run.rows; ++r) std::copy_n(numbers, 6, sizes.row<float>(r));
    conditioning.tensors["image_meta_size"] = sizes;
    conditioning.tensors["style"] = Tensor::zeros({run.rows}, DType::i32);
  }

 private:
  HunyuanDitConfig config_;
};

}  // namespace

HunyuanDitConfig parse_hunyuan_dit_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  HunyuanDitConfig c;
  read.choice("norm_type", "layer_norm", {"layer_norm"});
  read.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.attention_head_dim = read.size("attention_head_dim", c.attention_head_dim);
  c.num_layers = read.integer("num_layers", c.num_layers, 2, 10000);
  c.in_channels = read.size("in_channels", c.in_channels);
  c.patch_size = read.size("patch_size", c.patch_size);
  c.sample_size = read.size("sample_size", c.sample_size);
  c.mlp_ratio = read.number("mlp_ratio", c.mlp_ratio, 0.01, 1000);
  c.learn_sigma = read.flag("learn_sigma", true);
  c.use_style_cond_and_image_meta_size = read.flag("use_style_cond_and_image_meta_size", true);
  c.cross_attention_dim = read.size("cross_attention_dim", c.cross_attention_dim);
  c.cross_attention_dim_t5 = read.size("cross_attention_dim_t5", c.cross_attention_dim_t5);
  c.pooled_projection_dim = read.size("pooled_projection_dim", c.pooled_projection_dim);
  c.text_len = read.size("text_len", c.text_len);
  c.text_len_t5 = read.size("text_len_t5", c.text_len_t5);
  check_heads(read, c.num_attention_heads, c.attention_head_dim);
  require(
      c.attention_head_dim % 4 == 0 && c.num_layers % 2 == 0 && c.cross_attention_dim_t5 % 8 == 0,
      ErrorCode::model, "{}: {} layers, heads of {} and cross_attention_dim_t5 {} do not fit",
      where, c.num_layers, c.attention_head_dim, c.cross_attention_dim_t5);
  return c;
}

std::unique_ptr<Recipe> hunyuan_dit_recipe(const base::Json& config, const std::string& where) {
  return std::make_unique<HunyuanDitRecipe>(parse_hunyuan_dit_config(config, where));
}

}  // namespace tessera::models
