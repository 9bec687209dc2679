#include "models/token_recipe.h"

#include "base/fail.h"
#include "base/printable.h"
#include "models/llada2_recipe.h"
#include "models/llada_moe_recipe.h"

namespace tessera::models {

const std::vector<TokenFamily>& token_families() {
  static const std::vector<TokenFamily> all{
      {"LLaDAMoEModelLM", llada_moe_recipe},
      {"LLaDA2MoeModelLM", llada2_recipe},
      {"llada2_moe", llada2_recipe},
  };
  return all;
}

std::unique_ptr<TokenRecipe> make_token_recipe(const base::Json& config, const std::string& where) {
  std::string type;
  if (const auto list = config.find("architectures");
      list != config.end() && list->is_array() && !list->empty() && (*list)[0].is_string())
    type = (*list)[0].get<std::string>();
  else if (const auto model = config.find("model_type");
           model != config.end() && model->is_string())
    type = model->get<std::string>();
  std::string known;
  for (const TokenFamily& family : token_families()) {
    if (type == family.type) return family.recipe(config, where);
    known += (known.empty() ? "" : ", ") + std::string(family.type);
  }
  fail(ErrorCode::model, "{}: language models of type {} are not supported; supported are: {}",
       where, base::printable(type), known);
}

}  // namespace tessera::models
