#include "models/text_recipe.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

TEST(TextRecipe, TakesNoClasses) {
  const auto recipe = make_recipe("SD3Transformer2DModel", base::Json::object(), "c");
  EXPECT_EQ(recipe->classes(), 0);
  EXPECT_NE(usage_error([&] { recipe->conditioning({1}, true); }).find("--prompt"),
            std::string::npos);
  EXPECT_FALSE(recipe->facts().empty());
}

TEST(TextRecipe, ALayoutIsTheTrainedOneUnlessAsked) {
  EXPECT_EQ(picture_layout(4, 2, 0, 10, 8).size, (std::array<int64_t, 3>{1, 8, 10}));
  EXPECT_THROW(picture_layout(4, 2, 7, 8, 8), Error);
}

TEST(TextRecipe, HeadsHaveAnEvenWidth) {
  const base::Json none = base::Json::object();
  const base::ConfigReader read(none, "c");
  EXPECT_NO_THROW(check_heads(read, 3, 12));
  EXPECT_THROW(check_heads(read, 3, 11), Error);
  EXPECT_THROW(check_heads(read, 1 << 20, 512), Error);
}

}  // namespace
}  // namespace tessera::models
