#include "evaluation/scenes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

constexpr int64_t kSide = 96;

struct Spot {
  const char *colour, *shape;
  double x, y, size;  // in shares of the side
};

std::vector<uint8_t> draw(const std::vector<Spot>& spots, double ground = 0.8, double noise = 0,
                          int64_t width = kSide) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> shake(-noise, noise);
  std::vector<uint8_t> rgb(static_cast<size_t>(kSide * width * 3));
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (size_t c = 0; c < 3; ++c) {
        double value = ground;
        for (const Spot& s : spots) {
          const double u = ((double(x) + 0.5) / kSide - s.x) / s.size,
                       v = ((double(y) + 0.5) / kSide - s.y) / s.size;
          const std::string shape = s.shape, colour = s.colour;
          const bool inside = shape == "circle"     ? std::hypot(u, v) < 1
                              : shape == "square"   ? std::max(std::abs(u), std::abs(v)) < 0.9
                              : shape == "triangle" ? v < 0.9 && 1.8 * std::abs(u) < v + 0.9
                              : shape == "bar"      ? std::abs(u) < 1 && std::abs(v) < 0.4
                                                    : std::min(std::abs(u), std::abs(v)) < 0.34 &&
                                                     std::max(std::abs(u), std::abs(v)) < 1;
          if (!inside) continue;
          if (colour == "red") value = c == 0 ? 0.9 : 0.1;
          if (colour == "green") value = c == 1 ? 0.65 : 0.15;
          if (colour == "blue") value = c == 2 ? 0.9 : 0.2;
          if (colour == "yellow") value = c == 2 ? 0.1 : 0.9;
          if (colour == "black") value = 0.05;
          if (colour == "white") value = 1;
        }
        const double shaken = std::clamp(value + shake(random), 0.0, 1.0);
        rgb[static_cast<size_t>((y * width + x) * 3) + c] = static_cast<uint8_t>(shaken * 255);
      }
  return rgb;
}

bool right(const std::vector<Spot>& spots, const std::string& caption, double noise = 0) {
  return shows(see_things(draw(spots, 0.8, noise), kSide, kSide), parse_scene(caption, "here"));
}

TEST(Scenes, NamesEveryColourAndShape) {
  for (const char* colour : {"red", "green", "blue", "yellow", "black"})
    for (const char* shape : {"circle", "square", "triangle", "cross"})
      for (double ground : {0.65, 0.95})
        for (double size : {0.09, 0.15}) {
          const auto seen =
              see_things(draw({{colour, shape, 0.4, 0.6, size}}, ground, 0.03), kSide, kSide);
          ASSERT_EQ(seen.size(), 1u) << colour << ' ' << shape;
          EXPECT_EQ(seen[0].colour, colour) << shape << " on " << ground;
          EXPECT_EQ(seen[0].shape, shape) << colour << " of size " << size;
          EXPECT_NEAR(seen[0].x, 0.4, 0.01);
          EXPECT_NEAR(seen[0].y, 0.6, 0.05);
        }
}

TEST(Scenes, DoesNotNameWhatIsNoneOfOurs) {
  auto seen = see_things(draw({{"red", "bar", 0.5, 0.5, 0.2}}), kSide, kSide);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].shape, "");
  seen = see_things(draw({{"white", "circle", 0.5, 0.5, 0.2}}, 0.4), kSide, kSide);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].colour, "");
  EXPECT_TRUE(see_things(draw({{"red", "circle", 0.5, 0.5, 0.02}}), kSide, kSide).empty())
      << "a speck";
  EXPECT_TRUE(see_things(draw({}), kSide, kSide).empty());
}

TEST(Scenes, ImagesNeedNotBeSquare) {
  const auto seen =
      see_things(draw({{"blue", "cross", 1.5, 0.5, 0.2}}, 0.8, 0, 2 * kSide), kSide, 2 * kSide);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].shape, "cross");
  EXPECT_NEAR(seen[0].x, 0.75, 0.01);
}

TEST(Scenes, HoldsEveryRelationOfACaption) {
  const Spot red{"red", "circle", 0.25, 0.3, 0.12}, blue{"blue", "square", 0.7, 0.35, 0.12},
      green{"green", "triangle", 0.72, 0.75, 0.12};
  EXPECT_TRUE(right({red, blue}, "a red circle left of a blue square", 0.05));
  EXPECT_TRUE(right({red, blue}, "a blue square right of a red circle"));
  EXPECT_FALSE(right({red, blue}, "a red circle right of a blue square"));
  EXPECT_FALSE(right({red, blue}, "a red circle above a blue square")) << "further left than above";
  EXPECT_TRUE(
      right({red, blue, green}, "a red circle left of a blue square above a green triangle"));
  EXPECT_TRUE(
      right({red, blue, green}, "a green triangle below a blue square right of a red circle"));
  EXPECT_FALSE(
      right({red, blue, green}, "a red circle left of a blue square below a green triangle"));
}

TEST(Scenes, WantsAllThingsAndNoOthers) {
  const Spot red{"red", "circle", 0.25, 0.3, 0.12}, blue{"blue", "square", 0.7, 0.35, 0.12},
      green{"green", "triangle", 0.72, 0.75, 0.12};
  EXPECT_FALSE(right({red}, "a red circle left of a blue square"));
  EXPECT_FALSE(right({red, blue, green}, "a red circle left of a blue square"));
  EXPECT_FALSE(right({red, blue}, "a blue circle left of a red square")) << "colours swapped";
  EXPECT_FALSE(right({red, blue}, "a red square left of a blue circle")) << "shapes swapped";
  EXPECT_FALSE(
      right({red, {"blue", "square", 0.33, 0.31, 0.12}}, "a red circle left of a blue square"))
      << "they touch";
}

TEST(Scenes, TellsWhichOfTwoAlikeIsMeant) {
  const Spot one{"red", "circle", 0.2, 0.5, 0.1}, other{"red", "circle", 0.8, 0.5, 0.1},
      middle{"blue", "cross", 0.5, 0.5, 0.1};
  EXPECT_TRUE(
      right({other, one, middle}, "a red circle left of a blue cross left of a red circle"));
  EXPECT_TRUE(right({one, other}, "a red circle right of a red circle"));
}

TEST(Scenes, RefusesOtherCaptions) {
  const auto message = [](const std::string& caption) -> std::string {
    try {
      parse_scene(caption, "captions.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("a pink circle").find("'pink' where a colour"), std::string::npos);
  EXPECT_NE(message("a red circle left a blue square").find("'a' where 'of'"), std::string::npos);
  EXPECT_NE(message("a red circle above").find("'' where 'a'"), std::string::npos);
  EXPECT_NE(message("").find("captions.json"), std::string::npos);
  std::string many = "a red circle";
  for (int i = 0; i < 6; ++i) many += " above a red circle";
  EXPECT_NE(message(many).find("more than 6 things"), std::string::npos);
}

}  // namespace
}  // namespace tessera::evaluation
