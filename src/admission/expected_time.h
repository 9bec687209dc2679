#pragma once

#include <map>
#include <string>

#include "admission/memory_plan.h"
#include "runtime/model_state.h"

namespace tessera::admission {

/// This machine's work in a second, measured over the threads of the scope.
struct Rates {
  double products = 0;   ///< FLOP of matrix products
  double attention = 0;  ///< FLOP in attention
  double elements = 0;   ///< bytes read and written by element-wise ops
  double packing = 0;    ///< bytes of packed weights
};
/// Takes about 0.1 s.
Rates measure_rates(nn::DType dtype);

/// Seconds for ops counted on meta.
double seconds_of(const diffusion::Work& work, const Rates& rates);

/// Expected seconds of a run.
struct ExpectedTime {
  double text = 0, load = 0, step = 0, decode = 0;
  int steps = 0;
  double whole() const { return text + load + step * steps + decode; }
  /// "about 3.1 s a step, 2 min 40 s in all (50 steps; text 12 s, decoding 8 s)".
  std::string sentence() const;
};

/// The needs of a run of an open model on a single rank, from configurations
/// only.
struct RunNeed {
  diffusion::MemoryNeed denoise, text, decode;  ///< a step; all texts; one image or video
  int64_t peak = 0;                             ///< bytes; parts follow each other in memory
  int samples = 1, steps = 1;
  double computed_share = 1;  ///< computed blocks / all, known from a step cache's rule
};
RunNeed run_need(const runtime::ModelState& state, const diffusion::Job& job, bool decode);
ExpectedTime expected_time(const RunNeed& need, const Rates& rates);

/// Announces a long run's expected time on control.on_note, before the first wait. Nothing on a
/// GPU, whose rates are not measured.
void announce(const runtime::ModelState& state, const diffusion::Job& job, bool decode,
              const RunControl& control);

}  // namespace tessera::admission
