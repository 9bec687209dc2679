#include "sample/canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::sample {
namespace {

constexpr int kMostSteps = 100000;

// f(name, member, low, high) for each setting.
template <class Rule, class F>
void each_setting(Rule& r, const F& f) {
  f("entropy_bound", r.entropy_bound, 0.0, 1e9);
  f("max_denoising_steps", r.max_denoising_steps, 1.0, double(kMostSteps));
  f("t_max", r.t_max, 0.0, 100.0);
  f("t_min", r.t_min, 0.0, 100.0);
  f("stability_threshold", r.stability_threshold, 0.0, double(kMostSteps));
  f("confidence_threshold", r.confidence_threshold, 0.0, 1e9);
}

void check_ids(const char* name, const tensor::Tensor& ids, int64_t tokens, int32_t vocabulary) {
  require(ids.defined() && ids.rank() == 2 && ids.size(1) == tokens && ids.size(0) > 0 &&
              ids.dtype() == tensor::DType::i32,
          ErrorCode::usage, "draws: '{}' is {}; expected i32 [n, {}]", name,
          ids.defined() ? ids.shape().str() : "missing", tokens);
  for (const int64_t id : ids.to_ints())
    require(id >= 0 && id < vocabulary, ErrorCode::usage,
            "draws: '{}' holds {}, which is outside the vocabulary of {}", name, id, vocabulary);
}

}  // namespace

void read_canvas(const std::string& text, const std::string& settings, CanvasRule& rule) {
  std::stringstream rest(settings);
  for (std::string word; std::getline(rest, word, ',');) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    bool is_setting = false;
    each_setting(rule, [&](const char* key, auto& member, double low, double high) {
      if (name != key || equals == std::string::npos) return;
      is_setting = true;
      const std::string value = word.substr(equals + 1);
      char* end = nullptr;
      const double number = std::strtod(value.c_str(), &end);
      const bool whole = std::is_same_v<std::decay_t<decltype(member)>, int>;
      require(!value.empty() && *end == '\0' && number >= low && number <= high &&
                  (!whole || number == std::floor(number)),
              ErrorCode::usage, "`decode` {}: {} is {}; expected a {} from {} to {}",
              base::printable(text), key, base::printable(value), whole ? "whole number" : "number",
              low, high);
      member = static_cast<std::decay_t<decltype(member)>>(number);
    });
    require(is_setting, ErrorCode::usage,
            "`decode` {}: {} is no setting; expected NAME=VALUE of {}", base::printable(text),
            base::printable(word), to_string(CanvasRule()).substr(7));
  }
  check_canvas(rule);
}

std::string to_string(const CanvasRule& rule) {
  std::string text = "canvas:";
  each_setting(rule, [&](const char* key, const auto& member, double, double) {
    text += fmt::format("{}{}={}", text.back() == ':' ? "" : ",", key, member);
  });
  return text;
}

void check_canvas(const CanvasRule& r) {
  each_setting(r, [&](const char* key, const auto& member, double low, double high) {
    const auto value = static_cast<double>(member);
    require(value >= low && value <= high, ErrorCode::usage, "{} {}; expected {} to {}", key,
            member, low, high);
  });
  require(r.t_max > 0 && r.t_min <= r.t_max, ErrorCode::usage,
          "t_max {} and t_min {}; expected t_max above 0, and t_min no higher", r.t_max, r.t_min);
}

void check_draws(const CanvasDraws& draws, int64_t tokens, int32_t vocabulary) {
  check_ids("init", draws.init, tokens, vocabulary);
  check_ids("noise", draws.noise, tokens, vocabulary);
  if (!draws.uniform.defined()) return;
  require(
      draws.uniform.shape() == draws.noise.shape() && draws.uniform.dtype() == tensor::DType::f32,
      ErrorCode::usage, "draws: 'uniform' is {}; expected f32 {}", draws.uniform.shape().str(),
      draws.noise.shape().str());
  for (const float u : draws.uniform.to_floats())
    require(u >= 0 && u <= 1, ErrorCode::usage, "draws: 'uniform' holds {}; expected 0 to 1", u);
}

double temperature_of(const CanvasRule& r, int step) {
  return r.t_min + (r.t_max - r.t_min) * (r.max_denoising_steps - step) / r.max_denoising_steps;
}

}  // namespace tessera::sample
