#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/config_reader.h"
#include "models/registry.h"

namespace tessera::models {

/// A recipe of a model that takes text, not classes.
class TextRecipe : public Recipe {
 public:
  nn::Conditioning conditioning(const std::vector<int>& classes, bool branches) const override;
  int64_t classes() const override { return 0; }
  std::string scheduler() const override { return ""; }
  std::vector<std::pair<std::string, std::string>> facts() const override { return facts_; }

 protected:
  /// Keeps a size for `inspect` and returns it.
  int64_t fact(const char* key, int64_t value);
  /// "encoder_hidden_states" of so many tokens on meta.
  static nn::Tensor meta(const tensor::Shape& shape, nn::DType dtype = nn::DType::f32);

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

/// A latent of so many pixels in square patches; 0: `trained` a side. Throws Error(usage) for sizes
/// that are no multiple of the patch.
nn::TokenLayout picture_layout(int64_t channels, int64_t patch, int64_t height, int64_t width,
                               int64_t trained);
/// Throws Error(model) unless every head has the same even width and the whole fits.
void check_heads(const base::ConfigReader& read, int64_t heads, int64_t head_dim);

}  // namespace tessera::models
