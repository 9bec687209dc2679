#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace tessera::sample {

/// Draws of an earlier run, in place of numbered noise.
struct CanvasDraws {
  tensor::Tensor init;   ///< i32 [canvases, tokens]: what each canvas begins with
  tensor::Tensor noise;  ///< i32 [passes, tokens]: fresh tokens, used where none is accepted
  tensor::Tensor
      uniform;  ///< f32 [passes, tokens] in [0, 1): draws; undefined: the likeliest token
};

/// How a canvas of random tokens is denoised (DiffusionGemma's entropy-bound sampler; the names are
/// those of generation_config.json).
struct CanvasRule {
  int max_denoising_steps = 48;
  double entropy_bound = 0.1;  ///< nats; accepted: the surest tokens whose predecessors sum to it
  double t_max = 0.8, t_min = 0.4;  ///< temperature, falling from the first pass on
  int stability_threshold = 1;      ///< a canvas is finished after so many passes of one answer ...
  double confidence_threshold = 0.005;  ///< ... with a mean entropy below, nats
  int32_t vocabulary = 0;
  std::shared_ptr<const CanvasDraws> draws{};
};

/// Reads "NAME=VALUE,..." into a rule. Throws Error(usage) naming what does not fit; `text` is the
/// whole policy for the message.
void read_canvas(const std::string& text, const std::string& settings, CanvasRule& rule);
/// The rule as read_canvas reads it, all settings.
std::string to_string(const CanvasRule& rule);
/// Throws Error(usage) for settings out of range.
void check_canvas(const CanvasRule& rule);
/// Throws Error(usage) unless the draws hold canvases of so many tokens of the vocabulary.
void check_draws(const CanvasDraws& draws, int64_t tokens, int32_t vocabulary);

/// Temperature of a pass: from t_max, in equal steps, almost to t_min.
double temperature_of(const CanvasRule& rule, int step);

}  // namespace tessera::sample
