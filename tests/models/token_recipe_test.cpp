#include "models/token_recipe.h"

#include <gtest/gtest.h>

#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(TokenRecipe, IsFoundByArchitecture) {
  EXPECT_FALSE(make_token_recipe(llada_moe_config(), "c")->facts().block_causal);
  base::Json config = llada2_config();
  config.erase("architectures");  // then by model_type
  EXPECT_TRUE(make_token_recipe(config, "c")->facts().block_causal);
}

TEST(TokenRecipe, NamesAnUnknownModelAndTheKnownOnes) {
  try {
    make_token_recipe({{"architectures", {"LlamaForCausalLM"}}}, "x/config.json");
    FAIL() << "a Llama was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    for (const char* part : {"x/config.json", "LlamaForCausalLM", "LLaDA2MoeModelLM"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace tessera::models
