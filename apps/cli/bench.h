#pragma once

#include "commands.h"

namespace tessera::cli {

/// Adds "bench parallel".
Command add_bench_parallel(CLI::App& bench);

}  // namespace tessera::cli
