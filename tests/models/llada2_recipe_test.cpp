#include "models/llada2_recipe.h"

#include <gtest/gtest.h>

#include "models/token_config.h"
#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(Llada2Recipe, ReadsRouterRotaryAndDenseLayers) {
  const auto recipe = llada2_recipe(llada2_config(), "c");
  const LladaConfig& c = dynamic_cast<const LladaRecipe&>(*recipe).config();
  EXPECT_TRUE(c.sigmoid && c.ranking_bias && c.renormalise && c.ling_names);
  EXPECT_EQ(c.sparse, (std::vector<bool>{false, true}));
  EXPECT_EQ(c.rotary_pairs, 4);
  EXPECT_EQ(c.shared_width, 16);
  EXPECT_EQ(c.groups, 4);
  EXPECT_EQ(recipe->facts().block, 32);
}

TEST(Llada2Recipe, RefusesGroupsThatDoNotDivide) {
  base::Json config = llada2_config();
  config["n_group"] = 3;
  config["topk_group"] = 2;
  EXPECT_THROW(llada2_recipe(config, "c"), Error);
}

}  // namespace
}  // namespace tessera::models
