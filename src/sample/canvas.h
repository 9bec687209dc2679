#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace tessera::sample {

/// Draws of an earlier run, in place of numbered noise.
struct CanvasDraws {
  tensor::Tensor init;   ///< i32 [canvases, tokens]: first tokens of each canvas
  tensor::Tensor noise;  ///< i32 [passes, tokens]: fresh tokens, used where none is accepted
  tensor::Tensor
      uniform;  ///< f32 [passes, tokens] in [0, 1): draws; undefined: the likeliest token
};

/// Rule to denoise a canvas of random tokens (DiffusionGemma's entropy-bound sampler; the names are
/// those of generation_config.json).
struct CanvasRule {
  int max_denoising_steps = 48;
  double entropy_bound = 0.1;       ///< nats; accepts the surest tokens up to this sum before them
  double t_max = 0.8, t_min = 0.4;  ///< temperature, falling from the first pass on
  int stability_threshold = 1;      ///< a canvas ends after this many passes with equal answers ...
  double confidence_threshold = 0.005;  ///< ... with a mean entropy below, nats
  int32_t vocabulary = 0;
  std::shared_ptr<const CanvasDraws> draws{};
};

/// Reads "NAME=VALUE,..." into a rule. Throws Error(usage) naming the invalid setting; `text` is
/// the whole policy for the message.
void read_canvas(const std::string& text, const std::string& settings, CanvasRule& rule);
/// The rule with all settings in the form of read_canvas().
std::string to_string(const CanvasRule& rule);
/// Throws Error(usage) for settings out of range.
void check_canvas(const CanvasRule& rule);
/// Throws Error(usage) unless the draws hold canvases of `tokens` tokens of the vocabulary.
void check_draws(const CanvasDraws& draws, int64_t tokens, int32_t vocabulary);

/// Temperature of a pass: from t_max, in equal steps, almost to t_min.
double temperature_of(const CanvasRule& rule, int step);

}  // namespace tessera::sample
