#include "models/registry.h"

#include "base/fail.h"
#include "models/cogvideox_recipe.h"
#include "models/dit_moe_recipe.h"
#include "models/flux_recipe.h"
#include "models/hunyuan_dit_recipe.h"
#include "models/pixart_recipe.h"
#include "models/sd3_recipe.h"

namespace tessera::models {

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"dit_moe", dit_moe_recipe},
      {"DiTMoE", dit_moe_recipe},
      {"PixArtTransformer2DModel", pixart_recipe},
      {"Transformer2DModel", pixart_recipe},  // PixArt's name before diffusers 0.29
      {"SD3Transformer2DModel", sd3_recipe},
      {"FluxTransformer2DModel", flux_recipe},
      {"HunyuanDiT2DModel", hunyuan_dit_recipe},
      {"CogVideoXTransformer3DModel", cogvideox_recipe},
  };
  return all;
}

std::unique_ptr<Recipe> make_recipe(const std::string& type, const base::Json& config,
                                    const std::string& where) {
  std::string known;
  for (const Family& family : families()) {
    if (type == family.type) return family.recipe(config, where);
    known += (known.empty() ? "" : ", ") + std::string(family.type);
  }
  fail(ErrorCode::model, "{}: models of type '{}' are not supported; supported are: {}", where,
       type, known);
}

const std::vector<std::pair<std::string, base::Json>>& named_sizes() {
  static const auto all = dit_moe_sizes();
  return all;
}

}  // namespace tessera::models
