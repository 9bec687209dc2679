#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::evaluation {

/// Where a thing lies, seen from the next one of its caption.
enum class Relation { left, right, above, below };

/// A coloured shape as a caption names it: red, green, blue, yellow or black; circle, square,
/// triangle or cross.
struct Thing {
  std::string colour, shape;
};

/// What a caption asks for: relations[i] says where things[i] lies, seen from things[i + 1].
struct Scene {
  std::vector<Thing> things;
  std::vector<Relation> relations;
};

/// Reads "a red circle left of a blue square above a black cross". Throws Error(model) naming
/// `where` and the word that does not fit, and for more than 6 things.
Scene parse_scene(const std::string& caption, const std::string& where);

/// A thing found in an image; a colour or shape that is none of ours is "".
struct SeenThing {
  std::string colour, shape;
  double x = 0, y = 0;  ///< its middle in shares of the image's width and height, y downwards
};

/// The things in an image [height, width, 3] on a plain ground: what stands out from the colour of
/// its border, joined pixels together; specks under half a percent of the image do not count. A
/// shape is the one that fills the thing's box best (intersection over union, at least 0.7).
std::vector<SeenThing> see_things(std::span<const uint8_t> rgb, int64_t height, int64_t width);

/// Whether these are the scene's things, no more and no less, and every relation holds: one lies to
/// the left of another if its middle does, by a tenth of the image or more and by more than it
/// lies up or down.
bool shows(const std::vector<SeenThing>& seen, const Scene& scene);

}  // namespace tessera::evaluation
