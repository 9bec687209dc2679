#include "evaluation/scenes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/fail.h"

namespace tessera::evaluation {
namespace {

using Colour = std::array<double, 3>;  // 0..1

struct Named {
  const char* name;
  Colour colour;
};
constexpr Named kColours[] = {{"red", {0.88, 0.12, 0.12}},
                              {"green", {0.10, 0.68, 0.20}},
                              {"blue", {0.14, 0.26, 0.90}},
                              {"yellow", {0.96, 0.84, 0.10}},
                              {"black", {0.05, 0.05, 0.05}}};
constexpr const char* kShapes[] = {"circle", "square", "triangle", "cross"};

constexpr double kStandsOut = 0.25;    // distance of a colour from the ground's
constexpr double kColourReach = 0.35;  // distance of a thing's colour from its named colour
constexpr double kLeastArea = 0.005;   // share of the image
constexpr double kLeastFit = 0.7;
constexpr double kMostAspect = 1.4;
constexpr size_t kMostThings = 6;
constexpr double kLeastStep = 0.1;  // share of the image, between two centres

double distance(const Colour& a, const Colour& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

/// An image as colours.
struct View {
  std::span<const uint8_t> rgb;
  int64_t height, width;
  Colour at(int64_t pixel) const {
    Colour c;
    for (size_t i = 0; i < 3; ++i) c[i] = rgb[static_cast<size_t>(pixel) * 3 + i] / 255.0;
    return c;
  }
};

Colour median(const View& view, const std::vector<int64_t>& pixels) {
  Colour result;
  std::vector<double> values(pixels.size());
  for (size_t i = 0; i < 3; ++i) {
    for (size_t p = 0; p < pixels.size(); ++p) values[p] = view.at(pixels[p])[i];
    const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    result[i] = *middle;
  }
  return result;
}

std::vector<int64_t> border(int64_t height, int64_t width) {
  std::vector<int64_t> pixels;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      if (y == 0 || x == 0 || y + 1 == height || x + 1 == width) pixels.push_back(y * width + x);
  return pixels;
}

// Takes the pixels joined to `seed`, edge to edge, out of `open`.
std::vector<int64_t> joined(int64_t seed, const View& view, std::vector<bool>& open) {
  std::vector<int64_t> pixels = {seed};
  open[static_cast<size_t>(seed)] = false;
  for (size_t i = 0; i < pixels.size(); ++i) {
    const int64_t x = pixels[i] % view.width, y = pixels[i] / view.width;
    const std::array<std::pair<int64_t, bool>, 4> next = {
        {{pixels[i] - 1, x > 0},
         {pixels[i] + 1, x + 1 < view.width},
         {pixels[i] - view.width, y > 0},
         {pixels[i] + view.width, y + 1 < view.height}}};
    for (const auto& [pixel, inside] : next)
      if (inside && open[static_cast<size_t>(pixel)]) {
        open[static_cast<size_t>(pixel)] = false;
        pixels.push_back(pixel);
      }
  }
  return pixels;
}

// x, y in -1..1 of the box.
bool fills(const std::string& shape, double x, double y) {
  constexpr double kArm = 0.34;  // half of the width of a cross's bars
  if (shape == "circle") return x * x + y * y <= 1;
  if (shape == "square") return true;
  if (shape == "triangle") return 2 * std::abs(x) <= 1 + y;
  return std::abs(x) <= kArm || std::abs(y) <= kArm;
}

std::string shape_of(const std::vector<int64_t>& pixels, int64_t width) {
  int64_t left = width, right = -1, top = pixels[0] / width, bottom = top;
  for (int64_t pixel : pixels) {
    left = std::min(left, pixel % width);
    right = std::max(right, pixel % width);
    top = std::min(top, pixel / width);
    bottom = std::max(bottom, pixel / width);
  }
  const int64_t w = right - left + 1, h = bottom - top + 1;
  if (double(std::max(w, h)) > kMostAspect * double(std::min(w, h))) return "";
  std::vector<bool> mask(static_cast<size_t>(w * h), false);
  for (int64_t p : pixels)
    mask[static_cast<size_t>((p / width - top) * w + p % width - left)] = true;
  std::string best;
  double best_fit = kLeastFit;
  for (const char* shape : kShapes) {
    int64_t common = 0, either = 0;
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const bool expected =
            fills(shape, (2 * double(x) + 1) / double(w) - 1, (2 * double(y) + 1) / double(h) - 1);
        const bool is_set = mask[static_cast<size_t>(y * w + x)];
        common += expected && is_set;
        either += expected || is_set;
      }
    const double fit = double(common) / double(either);
    if (fit >= best_fit) {
      best_fit = fit;
      best = shape;
    }
  }
  return best;
}

std::string colour_of(const Colour& colour) {
  const auto nearest = std::min_element(
      std::begin(kColours), std::end(kColours), [&](const Named& a, const Named& b) {
        return distance(a.colour, colour) < distance(b.colour, colour);
      });
  return distance(nearest->colour, colour) <= kColourReach ? nearest->name : "";
}

bool holds(Relation relation, const SeenThing& a, const SeenThing& b) {
  const double dx = b.x - a.x, dy = b.y - a.y;  // from a to b
  const bool across = relation == Relation::left || relation == Relation::right;
  const double along = across ? dx : dy, aside = across ? dy : dx;
  const bool before = relation == Relation::left || relation == Relation::above;
  return (before ? along : -along) >= std::max(kLeastStep, std::abs(aside));
}

/// The words of a caption, in order.
class Words {
 public:
  Words(const std::string& caption, const std::string& where)
      : caption_(caption), where_(where), stream_(caption) {
    next();
  }
  bool done() const { return word_.empty(); }
  /// Takes the next word, which must be in `names`, and returns its index.
  template <class Names>
  size_t take(const Names& names, const char* expected) {
    const auto it = std::find(std::begin(names), std::end(names), word_);
    require(it != std::end(names), ErrorCode::model,
            "{}: the caption '{:.80}' has '{:.40}' where {} is expected", where_, caption_, word_,
            expected);
    next();
    return static_cast<size_t>(it - std::begin(names));
  }

 private:
  void next() {
    word_.clear();
    stream_ >> word_;
  }
  const std::string &caption_, &where_;
  std::istringstream stream_;
  std::string word_;
};

}  // namespace

Scene parse_scene(const std::string& caption, const std::string& where) {
  constexpr std::array kArticle = {"a"}, kOf = {"of"};
  constexpr std::array kRelations = {"left", "right", "above", "below"};
  std::vector<std::string> colours;
  for (const Named& named_colour : kColours) colours.emplace_back(named_colour.name);
  Words words(caption, where);
  Scene scene;
  while (true) {
    words.take(kArticle, "'a'");
    const size_t colour = words.take(colours, "a colour (red, green, blue, yellow, black)");
    const size_t shape = words.take(kShapes, "a shape (circle, square, triangle, cross)");
    scene.things.push_back({colours[colour], kShapes[shape]});
    if (words.done()) break;
    require(scene.things.size() < kMostThings, ErrorCode::model,
            "{}: the caption '{:.80}' has more than {} things", where, caption, kMostThings);
    const auto relation =
        static_cast<Relation>(words.take(kRelations, "left of, right of, above or below"));
    if (relation == Relation::left || relation == Relation::right) words.take(kOf, "'of'");
    scene.relations.push_back(relation);
  }
  return scene;
}

std::vector<SeenThing> see_things(std::span<const uint8_t> rgb, int64_t height, int64_t width) {
  require(height > 0 && width > 0 && rgb.size() == static_cast<size_t>(height * width * 3),
          ErrorCode::usage, "{} bytes are no image of {} x {}", rgb.size(), width, height);
  const View view{rgb, height, width};
  const Colour ground = median(view, border(height, width));
  std::vector<bool> open(static_cast<size_t>(height * width));
  for (size_t p = 0; p < open.size(); ++p)
    open[p] = distance(view.at(static_cast<int64_t>(p)), ground) > kStandsOut;
  std::vector<SeenThing> things;
  for (int64_t p = 0; p < height * width; ++p) {
    if (!open[static_cast<size_t>(p)]) continue;
    const std::vector<int64_t> pixels = joined(p, view, open);
    const auto area = double(pixels.size());
    if (area < kLeastArea * double(height * width)) continue;
    SeenThing thing{colour_of(median(view, pixels)), shape_of(pixels, width)};
    for (int64_t pixel : pixels) {
      const int64_t x = pixel % width, y = pixel / width;
      thing.x += (double(x) + 0.5) / (area * double(width));
      thing.y += (double(y) + 0.5) / (area * double(height));
    }
    things.push_back(thing);
  }
  return things;
}

bool shows(const std::vector<SeenThing>& things, const Scene& scene) {
  if (things.size() != scene.things.size()) return false;
  std::vector<size_t> order(things.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    bool right = true;
    for (size_t i = 0; i < order.size() && right; ++i)
      right = things[order[i]].colour == scene.things[i].colour &&
              things[order[i]].shape == scene.things[i].shape;
    for (size_t i = 0; i < scene.relations.size() && right; ++i)
      right = holds(scene.relations[i], things[order[i]], things[order[i + 1]]);
    if (right) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

}  // namespace tessera::evaluation
