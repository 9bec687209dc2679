#pragma once

#include <array>

#include "kernels/nibbles.h"

namespace tessera::kernels {

/// Whether panels of a file hold nibbles: u8 [panels, steps, kNibbleStepBytes], scales within.
bool holds_nibbles(const StoredPanels& panels);
/// Their rows; the second is empty where there is no pair.
std::array<StoredMatrix, 2> rows_of_nibbles(const StoredPanels& panels);

}  // namespace tessera::kernels
