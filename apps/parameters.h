#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine.h"

namespace tessera {

/// What a file says of its request beside what is in the result.
struct Parameters {
  std::string model;
  std::optional<std::string> negative_prompt{};
  uint64_t seed = 0;
  int count = 1, position = 0;  ///< samples of the request, and which of them it is
};

/// The form that other programs read: the prompt, what to lead away from, then "Name: value, ...".
std::string parameters_of(const GenerateResult& result, const Image& image, const Parameters& said);

/// As save_png and the others take them.
std::vector<std::pair<std::string, std::string>> texts_of(const std::string& parameters);

}  // namespace tessera
