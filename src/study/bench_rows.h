#pragma once

#include "study/bench.h"

namespace tessera::study {

/// Norms, rope, element-wise ops, routing, combining, copies, steps of samplers, the peak of
/// logits, group norm.
void bench_rows(const Bench& bench);

}  // namespace tessera::study
