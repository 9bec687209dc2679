#include "load/few_steps.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "load/safetensors.h"

namespace tessera::load {
namespace {

constexpr int kMostSteps = 32;
constexpr std::string_view kDistilled[] = {"turbo",   "lightning", "hyper", "lcm", "tcd",
                                           "schnell", "distill",   "dmd",   "pcm", "lightx2v"};

bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool digit(char c) { return c >= '0' && c <= '9'; }

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Returns whether a word begins in `text`, at the start or behind a character that is no letter.
bool holds_word(const std::string& text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (at == 0 || !letter(text[at - 1])) return true;
  return false;
}

// Returns the number before "step", with a space, hyphen or underscore between at most; 0: none.
int number_of_steps(const std::string& text) {
  for (size_t at = text.find("step"); at != std::string::npos; at = text.find("step", at + 1)) {
    size_t end = at;
    if (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '-' || text[end - 1] == '_')) --end;
    size_t begin = end;
    while (begin > 0 && digit(text[begin - 1])) --begin;
    if (begin == end || end - begin > 2) continue;
    const int steps = std::stoi(text.substr(begin, end - begin));
    if (steps >= 1 && steps <= kMostSteps) return steps;
  }
  return 0;
}

}  // namespace

bool says_turbo(const std::string& name) { return holds_word(small_letters(name), "turbo"); }

std::optional<FewSteps> few_steps_of(const std::string& name) {
  const std::string small = small_letters(name);
  const bool distilled = std::ranges::any_of(
      kDistilled, [&](std::string_view word) { return holds_word(small, word); });
  const int steps = number_of_steps(small);
  if (!distilled || steps == 0) return {};
  return FewSteps{steps, holds_word(small, "cfg") && !holds_word(small, "distill")};
}

std::optional<FewSteps> few_steps_of_adapter(const std::string& path) {
  const std::filesystem::path file(path);
  std::vector<std::string> names{file.stem().string()};
  const SafetensorsFile weights(path);
  for (const char* key : {"modelspec.title", "modelspec.usage_hint", "ss_output_name"})
    if (const auto it = weights.metadata().find(key); it != weights.metadata().end())
      names.push_back(it->second);
  names.push_back(file.parent_path().filename().string());
  for (const std::string& name : names)
    if (const auto steps = few_steps_of(name)) return steps;
  return {};
}

}  // namespace tessera::load
