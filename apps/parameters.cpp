#include "parameters.h"

#include <cstdio>

namespace tessera {
namespace {

// A value that would end before its end, as other programs read the line, stands in quotes.
std::string in_quotes(const std::string& value) {
  if (value.find_first_of(",:\n\"") == std::string::npos) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

std::string parameters_of(const GenerateResult& result, const Image& image,
                          const Parameters& said) {
  char guidance[32];
  std::snprintf(guidance, sizeof guidance, "%g", double{result.guidance});
  std::string text = image.label + "\n";
  if (said.negative_prompt) text += "Negative prompt: " + *said.negative_prompt + "\n";
  text += "Steps: " + std::to_string(result.steps) + ", Sampler: " + result.sampler +
          ", CFG scale: " + guidance + ", Seed: " + std::to_string(said.seed) +
          ", Size: " + std::to_string(image.width) + "x" + std::to_string(image.height) +
          ", Model: " + in_quotes(said.model);
  if (said.count > 1)
    text += ", Batch size: " + std::to_string(said.count) +
            ", Batch pos: " + std::to_string(said.position);
  return text + ", Version: Tessera " + kVersion;
}

std::vector<std::pair<std::string, std::string>> texts_of(const std::string& parameters) {
  return {{"Software", std::string("Tessera ") + kVersion}, {"parameters", parameters}};
}

}  // namespace tessera
