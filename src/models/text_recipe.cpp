#include "models/text_recipe.h"

#include "base/fail.h"

namespace tessera::models {

nn::Conditioning TextRecipe::conditioning(const std::vector<int>&, bool) const {
  fail(ErrorCode::usage, "this model takes text, not classes: give --prompt");
}

int64_t TextRecipe::fact(const char* key, int64_t value) {
  facts_.emplace_back(key, std::to_string(value));
  return value;
}

nn::Tensor TextRecipe::meta(const tensor::Shape& shape, nn::DType dtype) {
  return nn::Tensor::empty(shape, dtype, tensor::Device::meta);
}

nn::TokenLayout picture_layout(int64_t channels, int64_t patch, int64_t height, int64_t width,
                               int64_t trained) {
  const nn::TokenLayout layout{.channels = channels,
                               .size = {1, height ? height : trained, width ? width : trained},
                               .patch = {1, patch, patch}};
  for (size_t i : {1, 2})
    require(layout.size[i] > 0 && layout.size[i] % patch == 0, ErrorCode::usage,
            "a latent of {} x {} (width x height) does not fit patches of {}; use a multiple",
            layout.size[2], layout.size[1], patch);
  return layout;
}

void check_heads(const base::ConfigReader& read, int64_t heads, int64_t head_dim) {
  require(head_dim % 2 == 0 && head_dim <= 512 && heads * head_dim <= 1 << 20, ErrorCode::model,
          "{}: {} heads of {} channels; expected an even width up to 512", read.where(), heads,
          head_dim);
}

}  // namespace tessera::models
