#include "models/dit_moe_recipe.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::models {
namespace {

using base::Json;

constexpr int64_t kMost = int64_t{1} << 20;  // no size in a configuration is larger

class Reader {
 public:
  Reader(const Json& config, std::string where) : config_(config), where_(std::move(where)) {}

  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const Json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t(kMost)) &&
                      value.get<int64_t>() >= low && value.get<int64_t>() <= high;
    require(fits, ErrorCode::model, "{}: '{}' is {}; expected a whole number from {} to {}", where_,
            key, shown(value), low, high);
    return value.get<int64_t>();
  }
  double number(const char* key, double low, double high) const {
    const Json& value = at(key);
    const bool fits =
        value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
    require(fits, ErrorCode::model, "{}: '{}' is {}; expected a number from {} to {}", where_, key,
            shown(value), low, high);
    return value.get<double>();
  }
  bool boolean(const char* key, bool missing) const {
    if (!config_.contains(key)) return missing;
    require(at(key).is_boolean(), ErrorCode::model, "{}: '{}' is {}; expected true or false",
            where_, key, shown(at(key)));
    return at(key).get<bool>();
  }
  bool flash() const {
    if (!config_.contains("attention")) return true;
    const Json& value = at("attention");
    const bool known = value.is_string() && (value == "flash" || value == "timm");
    require(known, ErrorCode::model, "{}: 'attention' is {}; expected \"flash\" or \"timm\"",
            where_, shown(value));
    return value == "flash";
  }

 private:
  const Json& at(const char* key) const {
    require(config_.is_object() && config_.contains(key), ErrorCode::model,
            "{}: '{}' is missing; tools/convert_dit_moe.py writes a complete file", where_, key);
    return config_.at(key);
  }
  static std::string shown(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
  }
  const Json& config_;
  std::string where_;
};

class DitMoeRecipe : public Recipe {
 public:
  explicit DitMoeRecipe(const DitMoeConfig& config) : config_(config) {}
  int64_t blocks() const override { return config_.depth; }
  int64_t classes() const override { return config_.num_classes; }

  std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                     nn::DType dtype) const override {
    return std::make_unique<DitMoe>(config_, weights, portion, dtype);
  }

  nn::TokenLayout layout(int64_t height, int64_t width, int64_t) const override {
    nn::TokenLayout layout{
        .channels = config_.in_channels,
        .size = {1, height ? height : config_.input_size, width ? width : config_.input_size},
        .patch = {1, config_.patch_size, config_.patch_size}};
    for (size_t i : {1, 2})
      require(layout.size[i] > 0 && layout.size[i] % config_.patch_size == 0, ErrorCode::usage,
              "a latent of {} x {} (width x height) does not fit patches of {}; use a multiple",
              layout.size[2], layout.size[1], config_.patch_size);
    return layout;
  }

  nn::Conditioning conditioning(const std::vector<int>& wanted, bool branches) const override {
    std::vector<int32_t> labels;
    for (int label : wanted) {
      require(label >= 0 && label < config_.num_classes, ErrorCode::usage,
              "class {} does not exist: this model has classes 0 to {}", label,
              config_.num_classes - 1);
      labels.push_back(label);
    }
    if (branches)
      labels.insert(labels.end(), wanted.size(), static_cast<int32_t>(config_.num_classes));
    const int64_t rows = static_cast<int64_t>(labels.size());
    nn::Conditioning conditioning;
    conditioning.tensors["y"] = Tensor::from(std::span<const int32_t>(labels), {rows});
    return conditioning;
  }

  // The released S and B checkpoints (timm attention) were trained with DDPM, XL and G as flows.
  std::string scheduler() const override { return config_.fused_qkv ? "rectified-flow" : "ddpm"; }
  int64_t guided_channels(const std::string& scheduler) const override {
    return scheduler == "ddpm" ? 3 : config_.in_channels;
  }
  ForwardNames forward_names() const override { return {"x", "t", {"y"}}; }
  nn::Conditioning example(int64_t rows) const override {
    nn::Conditioning labels;
    labels.tensors["y"] = Tensor::empty({rows}, DType::i32, tensor::Device::meta);
    return labels;
  }

  std::vector<std::pair<std::string, std::string>> facts() const override {
    const DitMoeConfig& c = config_;
    return {{"depth", std::to_string(c.depth)},
            {"hidden_size", std::to_string(c.hidden_size)},
            {"num_heads", std::to_string(c.num_heads)},
            {"num_experts", std::to_string(c.num_experts)},
            {"num_experts_per_tok", std::to_string(c.num_experts_per_tok)},
            {"n_shared_experts", std::to_string(c.n_shared_experts)},
            {"expert_width", std::to_string(c.expert_width())},
            {"input_size", std::to_string(c.input_size)},
            {"patch_size", std::to_string(c.patch_size)},
            {"num_classes", std::to_string(c.num_classes)},
            {"attention", c.fused_qkv ? "flash" : "timm"}};
  }

 private:
  DitMoeConfig config_;
};

Json size_of(int64_t depth, int64_t hidden, int64_t heads, int64_t experts, bool flash) {
  return {{"model_type", "dit_moe"},
          {"hidden_size", hidden},
          {"depth", depth},
          {"num_heads", heads},
          {"patch_size", 2},
          {"in_channels", 4},
          {"input_size", 32},
          {"mlp_ratio", 4},
          {"num_experts", experts},
          {"num_experts_per_tok", 2},
          {"n_shared_experts", 2},
          {"norm_topk_prob", false},
          {"learn_sigma", true},
          {"num_classes", 1000},
          {"attention", flash ? "flash" : "timm"},
          {"qk_norm", flash},
          {"frequency_embedding_size", 256}};
}

}  // namespace

DitMoeConfig parse_dit_moe_config(const Json& config, const std::string& where) {
  const Reader read(config, where);
  DitMoeConfig c;
  c.hidden_size = read.integer("hidden_size", 8, kMost);
  c.depth = read.integer("depth", 1, 10000);
  c.num_heads = read.integer("num_heads", 1, 10000);
  c.patch_size = read.integer("patch_size", 1, 256);
  c.in_channels = read.integer("in_channels", 1, 1024);
  c.input_size = read.integer("input_size", 1, 1 << 16);
  c.mlp_ratio = read.number("mlp_ratio", 0.01, 1000);
  c.num_experts = read.integer("num_experts", 1, 1 << 16);
  c.num_experts_per_tok = read.integer("num_experts_per_tok", 1, c.num_experts);
  c.n_shared_experts = read.integer("n_shared_experts", 0, 1000);
  c.norm_topk_prob = read.boolean("norm_topk_prob", false);
  c.learn_sigma = read.boolean("learn_sigma", true);
  c.num_classes = read.integer("num_classes", 1, kMost);
  c.fused_qkv = read.flash();
  c.qk_norm = read.boolean("qk_norm", c.fused_qkv);
  c.frequency_embedding_size = read.integer("frequency_embedding_size", 2, 1 << 16);
  require(
      c.hidden_size % c.num_heads == 0 && c.head_dim() % 8 == 0 && c.head_dim() <= 512,
      ErrorCode::model,
      "{}: hidden_size {} over num_heads {} gives no head width that is a multiple of 8 up to 512",
      where, c.hidden_size, c.num_heads);
  require(c.hidden_size % 4 == 0 && c.input_size % c.patch_size == 0, ErrorCode::model,
          "{}: input_size {} is no multiple of patch_size {}", where, c.input_size, c.patch_size);
  require(std::floor(c.mlp_ratio * double(c.hidden_size)) == c.mlp_ratio * double(c.hidden_size),
          ErrorCode::model, "{}: mlp_ratio {} times hidden_size {} is no whole width", where,
          c.mlp_ratio, c.hidden_size);
  return c;
}

std::unique_ptr<Recipe> dit_moe_recipe(const Json& config, const std::string& where) {
  return std::make_unique<DitMoeRecipe>(parse_dit_moe_config(config, where));
}

std::vector<std::pair<std::string, Json>> dit_moe_sizes() {
  return {{"dit_moe_s", size_of(12, 384, 6, 8, false)},
          {"dit_moe_b", size_of(12, 768, 12, 8, false)},
          {"dit_moe_l", size_of(24, 1024, 16, 8, false)},
          {"dit_moe_xl", size_of(28, 1152, 16, 8, true)},
          {"dit_moe_g", size_of(40, 1408, 16, 16, true)}};
}

}  // namespace tessera::models
