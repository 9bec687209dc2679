#pragma once

#include <map>
#include <string>

#include "admission/memory_plan.h"
#include "runtime/model_state.h"

namespace tessera::admission {

/// What this machine does in a second, measured now over the threads of the scope.
struct Rates {
  double products = 0;   ///< FLOP of matrix products
  double attention = 0;  ///< FLOP of attention
  double elements = 0;   ///< bytes that element-wise ops read and write
  double packing = 0;    ///< bytes of weights that are packed
};
/// Some 0.1 s.
Rates measure_rates(nn::DType dtype);

/// Seconds of ops that were counted on meta.
double seconds_of(const diffusion::Work& work, const Rates& rates);

/// Seconds that a run is expected to take.
struct ExpectedTime {
  double text = 0, load = 0, step = 0, decode = 0;
  int steps = 0;
  double whole() const { return text + load + step * steps + decode; }
  /// "about 3.1 s a step, 2 min 40 s in all (50 steps; text 12 s, decoding 8 s)".
  std::string sentence() const;
};

/// All that a run of an open model needs on one rank that holds all of it, from configurations
/// alone.
struct RunNeed {
  diffusion::Need denoise, text, decode;  ///< a step; all texts; one image or video
  int64_t peak = 0;                       ///< bytes; parts are in memory one after the other
  int samples = 1, steps = 1;
};
RunNeed run_need(const runtime::ModelState& state, const diffusion::Job& job, bool decode);
ExpectedTime expected_time(const RunNeed& need, const Rates& rates);

/// Says on control.on_note how long a run will take, if it is long: before the first wait. On a GPU
/// nothing: what it does in a second was not measured.
void announce(const runtime::ModelState& state, const diffusion::Job& job, bool decode,
              const RunControl& control);

}  // namespace tessera::admission
