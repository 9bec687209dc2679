#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::evaluation {

/// The place of a thing relative to the next thing of its caption.
enum class Relation { left, right, above, below };

/// A coloured shape named in a caption: red, green, blue, yellow or black; circle, square, triangle
/// or cross.
struct Thing {
  std::string colour, shape;
};

/// The content of a caption: relations[i] is the place of things[i] relative to things[i + 1].
struct Scene {
  std::vector<Thing> things;
  std::vector<Relation> relations;
};

/// Reads "a red circle left of a blue square above a black cross". Throws Error(model) with `where`
/// and the invalid word, and for more than 6 things.
Scene parse_scene(const std::string& caption, const std::string& where);

/// A thing found in an image; an unknown colour or shape is "".
struct SeenThing {
  std::string colour, shape;
  double x = 0, y = 0;  ///< centre in shares of the image's width and height, y downwards
};

/// The things in an image [height, width, 3] on a plain ground: regions of joined pixels with other
/// colours than the border; specks under half a percent of the image do not count. The shape is the
/// best fit to the thing's box (intersection over union, at least 0.7).
std::vector<SeenThing> see_things(std::span<const uint8_t> rgb, int64_t height, int64_t width);

/// True if the image shows exactly the scene's things and every relation holds: a thing is left of
/// another if its centre is, by at least a tenth of the image and by more than the vertical
/// distance.
bool shows(const std::vector<SeenThing>& things, const Scene& scene);

}  // namespace tessera::evaluation
