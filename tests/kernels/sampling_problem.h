#pragma once

#include <vector>

#include "kernels/random_values.h"
#include "kernels/sampling.h"
#include "kernels/where.h"

namespace tessera::kernels {

struct StepSize {
  int64_t rows, columns;
};

/// Operands of a step: views of wider rows.
struct SamplingProblem {
  Where at;
  int64_t rows, columns;
  tensor::Tensor x, prediction, noise, before, before_it, oldest;

  SamplingProblem(const Where& where, StepSize size)
      : at(where),
        rows(size.rows),
        columns(size.columns),
        x(view(1, columns)),
        prediction(view(2, 2 * columns)),
        noise(view(3, columns)),
        before(view(4, columns)),
        before_it(view(5, columns)),
        oldest(view(6, columns)) {}

  /// [2 * rows, columns]: the next latents, then the estimates.
  tensor::Tensor linear(void (*kernel)(const LinearStepArgs&),
                        const LinearStepCoefficients& by) const {
    const tensor::Tensor y = result(2 * rows);
    kernel({.by = by,
            .x = of(x),
            .prediction = of(prediction),
            .noise = by.noise != 0 ? of(noise) : FloatRows{},
            .earlier = {by.estimates[1] != 0 ? of(before) : FloatRows{},
                        by.estimates[2] != 0 ? of(before_it) : FloatRows{},
                        by.estimates[3] != 0 ? of(oldest) : FloatRows{}},
            .next = y.data<float>(),
            .estimate = y.row<float>(rows),
            .rows = rows,
            .columns = columns});
    return here(y);
  }
  tensor::Tensor learned_range(void (*kernel)(const LearnedRangeStepArgs&),
                               const LearnedRangeCoefficients& by, bool with_noise) const {
    const tensor::Tensor y = result(rows);
    kernel({.by = by,
            .x = of(x),
            .prediction = of(prediction),
            .noise = with_noise ? of(noise) : FloatRows{},
            .next = y.data<float>(),
            .rows = rows,
            .columns = columns});
    return here(y);
  }
  tensor::Tensor flow(void (*kernel)(const FlowStepArgs&), float size) const {
    const tensor::Tensor y = result(rows);
    kernel({.size = size,
            .x = of(x),
            .velocity = of(prediction),
            .next = y.data<float>(),
            .rows = rows,
            .columns = columns});
    return here(y);
  }
  tensor::Tensor guide(void (*kernel)(const GuideArgs&), float scale, int64_t guided) const {
    const tensor::Tensor y = result(rows);
    kernel({.scale = scale,
            .cond = of(prediction),
            .uncond = of(noise),
            .y = y.data<float>(),
            .rows = rows,
            .columns = columns,
            .guided = guided});
    return here(y);
  }

 private:
  static FloatRows of(const tensor::Tensor& t) { return {t.data<float>(), t.stride(0)}; }
  tensor::Tensor view(uint32_t seed, int64_t width) const {
    return at(random_tensor({rows, width + 3}, tensor::DType::f32, seed)).slice(1, 1, width + 1);
  }
  // Filled with sevens, to show elements that a kernel leaves out.
  tensor::Tensor result(int64_t count) const {
    const std::vector<float> sevens(static_cast<size_t>(count * columns), 7.0f);
    return at(tensor::Tensor::from(std::span<const float>(sevens), {count, columns}));
  }
};

/// The operands of a step, and a clip within the range of some estimates.
inline std::vector<LinearStepCoefficients> linear_steps() {
  const LinearStepCoefficients euler{.x = 1, .out = -0.25},
      third{.from_x = 1.25, .from_out = -0.75, .x = 0.5, .estimates = {0.7, -0.3, 0.1, -0.2}},
      second{.from_x = 0.9, .from_out = -0.4, .x = 0.6, .estimates = {1.2, -0.2, 0}, .noise = 0.3},
      clipped{.from_x = 1.5, .from_out = -1, .clip = 0.5, .x = 0.2, .out = 0.1, .estimates = {2}};
  return {euler, third, second, clipped};
}

constexpr LearnedRangeCoefficients kLearnedRange{1.25f, 0.75f, 0.3f, 0.7f, -3.0f, -4.5f};

}  // namespace tessera::kernels
