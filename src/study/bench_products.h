#pragma once

#include "study/bench.h"

namespace tessera::study {

/// Products, attention, experts, convolutions.
void bench_products(const Bench& bench);

}  // namespace tessera::study
